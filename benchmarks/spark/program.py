"""One query over Spark, as a program: python -m benchmarks.spark.program JSON."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from relquery.spark import connect

MODEL = "simulated:step=0.0001,speed=1000000"
ROOT = Path(__file__).parents[2]
COLUMNS = {
    "product": "concat('Product ', item)",
    "maker": "concat('Maker ', item % 150, ', a brewery')",
    "style": "concat('Style ', item % 60)",
    "description": "repeat(concat('What is said of product ', item, '. '), 6)",
    "city": "concat('City ', place)",
    "state": "concat('State ', place % 50)",
    "reviewer": "concat('Reviewer ', pmod(hash(k, 5), 20000))",
    "month": "concat('Month ', pmod(hash(k, 4), 24))",
    "rating": "concat(1 + pmod(hash(k, 3), 5), ' of 5')",
    "review": "concat('Review ', k, ': ', repeat(substr(md5(cast(k AS string)), 1, 16), 5))",
}
"""Those of the table, as Spark computes them from the number `k` of an input."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the program does. inputs: distinct ones. table: the file of rows that it writes."""

    rows: int
    inputs: int
    partitions: int
    ledger: str
    table: str


@dataclass(frozen=True, slots=True)
class Done:
    """What it prints. answered: rows with an answer. The rest: see StageReport."""

    answered: int
    seconds: float
    calls: int
    errors: int
    phr: float
    prompt_tokens: int
    cached_tokens: int


def run(job: Job) -> Done:
    """Make the table, and ask one call for each row."""
    from pyspark.sql import SparkSession

    warnings.simplefilter("ignore")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "480m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "8",
        "spark.executorEnv.PYTHONPATH": path,
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    numbers = spark.range(job.rows, numPartitions=8).selectExpr("id", f"id % {job.inputs} AS k")
    numbers = numbers.selectExpr(
        "id", "k", "pmod(hash(k, 1), 2000) item", "pmod(hash(k, 2), 500) place"
    )
    made = numbers.selectExpr("id", *(f"{sql} AS {name}" for name, sql in COLUMNS.items()))
    made.write.parquet(job.table)
    spark.read.parquet(job.table).createOrReplaceTempView("reviews")
    began = perf_counter()
    with connect(
        spark, MODEL, ledger=job.ledger, partitions=job.partitions, cache_tokens=200_000
    ) as con:
        fields = ", ".join(COLUMNS)
        frame = con.sql(
            f"SELECT id, LLM('Is it good?', {fields}, labels := ['Yes', 'No']) AS a FROM reviews"
        )
        answered = frame.where("a IS NOT NULL").count()
        (stage,) = con.report.stages
    seconds = perf_counter() - began
    spark.stop()
    return Done(
        answered,
        seconds,
        stage.calls,
        stage.errors,
        stage.phr,
        stage.prompt_tokens,
        stage.cached_tokens,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(Job(**json.loads(sys.argv[1]))))))
