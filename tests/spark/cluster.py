"""Runs a query on executors of their own, as a program: python -m tests.spark.cluster URL FOLDER.

With `speculate` behind these, Spark begins each task a second time if it takes long. Prints the
number of rows with the right answer, then the report as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings

from relquery.spark import connect
from tests.spark.conftest import session

ROWS, DISTINCT = 1_200, 300


SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
}


def main(url: str, folder: str, *more: str) -> None:
    """Ask about 300 texts in 1,200 rows."""
    warnings.simplefilter("ignore")
    cores = 2 if more else 1
    spark = session(f"local-cluster[2,{cores},1024]", **(SPECULATES if more else {}))
    rows = spark.range(ROWS, numPartitions=4).selectExpr(
        "id", f"concat('text ', id % {DISTINCT}) AS text", "concat('kind ', id % 7) AS kind"
    )
    rows.createOrReplaceTempView("texts")
    with connect(
        spark,
        "openai:stand-in",
        base_url=url,
        api_key="none",
        ledger=folder,
        concurrency=4,
        partitions=4,
        form="json",
    ) as con:
        found = con.sql("SELECT id, text, LLM('up', text) AS u FROM texts").collect()
        right = sum(row.u == row.text.upper() for row in found)
        print(json.dumps([right, len(found), con.report.calls, con.report.errors]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
