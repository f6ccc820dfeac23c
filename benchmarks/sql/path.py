"""What a query with LLM calls goes through before and after its answers.

`python -m benchmarks.sql.path` prints a table. On an older commit: copy this file there.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType

import duckdb
import pyarrow as pa

from benchmarks.queries.million import AtOnce
from relquery.connection import Connection, connect

YES = "LLM('Good? {}', t.a) = 'Yes'"
QUERIES = {
    "filter, 20 rows": "SELECT a FROM small t WHERE LLM('Good?', t.a) = 'Yes'",
    "three calls, 20 rows": "SELECT LLM('Summarize', a), LLM('Sentiment?', a, b) FROM small t "
    "WHERE LLM('Good?', t.a) = 'Yes'",
    "10 filters with OR, explained": "EXPLAIN SELECT a FROM small t WHERE "
    + " OR ".join(YES.format(number) for number in range(10)),
    "200 columns": "SELECT LLM('Summarize', *) FROM wide",
    "map, 640 rows": "SELECT LLM('Summarize', a, b) FROM t LIMIT 640",
    "map, 10,000 rows": "SELECT LLM('Summarize', a, b) FROM t",
    "no calls": "SELECT a FROM small",
}
"""The goals of these are in document.md."""
HOME = connect.__code__.co_filename.removesuffix("connection.py")


@dataclass(frozen=True, slots=True)
class Path:
    """functions, files: of relquery. statements: that run in the database; not those that parse and
    print in a database of the parser's own. milliseconds: the median of runs."""

    functions: int
    files: int
    statements: int
    milliseconds: float


@contextmanager
def traced(codes: set[CodeType]) -> Iterator[None]:
    """A block in which the functions of relquery are noted."""

    def note(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def logged(database: duckdb.DuckDBPyConnection) -> int:
    """How many statements a database has run since its log was turned on."""
    found = database.execute("SELECT count(*) FROM duckdb_logs WHERE type = 'QueryLog'").fetchone()
    assert found is not None
    return int(found[0])


def measured(connection: Connection, sql: str, runs: int) -> Path:
    """What a query goes through: each part once, then its time without a trace."""
    codes: set[CodeType] = set()
    connection.sql(sql, progress=False)
    with traced(codes):
        connection.sql(sql, progress=False)
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        connection.sql(sql, progress=False)
        seconds.append(time.perf_counter() - begin)
    log = connection.database.connection.cursor()
    log.execute("CALL enable_logging('QueryLog')")
    before = logged(log)
    connection.sql(sql, progress=False)
    statements = logged(log) - before - 1
    log.execute("CALL disable_logging()")
    files = {code.co_filename for code in codes}
    return Path(len(codes), len(files), statements, statistics.median(seconds) * 1000)


def main(runs: int = 9) -> None:
    """Print what each of QUERIES goes through."""
    words = [f"review {number} of a film" for number in range(10_000)]
    columns = {"a": words, "b": [f"title {number % 100}" for number in range(10_000)]}
    table = pa.table(columns)
    wide = pa.table({f"column_{number}": [f"v{number}"] * 5 for number in range(200)})
    print(f"{'':32}{'functions':>10}{'files':>7}{'statements':>12}{'ms':>9}")
    for name, sql in QUERIES.items():
        with connect(AtOnce(), ledger=None) as connection:
            for at, data in (("t", table), ("small", table.slice(0, 20)), ("wide", wide)):
                connection.register(at, data)
            path = measured(connection, sql, runs)
        counts = f"{path.functions:10}{path.files:7}{path.statements:12}"
        print(f"{name:32}{counts}{path.milliseconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
