"""What a statement with LLM calls goes through before and after its answers.

`python -m benchmarks.sql.path` prints a table. On an older commit: copy this file there.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FrameType

import duckdb
import pyarrow as pa

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.million import AtOnce
from benchmarks.templates import template
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
FILTER, THREE, OR, WIDE, SMALL_MAP, MAP, PLAIN = QUERIES
GOALS = {FILTER: 20, THREE: 45, OR: 50, WIDE: 60, SMALL_MAP: 60, MAP: 400, PLAIN: 8}
"""Milliseconds."""
OF_FILTER = {"functions": 250, "files": 35, "statements": 12}
WORDS = template("sql")
HOME = connect.__code__.co_filename.removesuffix("connection.py")


@dataclass(frozen=True, slots=True)
class Path:
    """functions: of relquery, that run, by the file that has them. statements: that run in the
    database; not those that parse and print in a database of the parser's own. milliseconds: the
    median of runs."""

    functions: Counter[str]
    statements: int
    milliseconds: float

    @property
    def rooms(self) -> dict[str, tuple[int, int]]:
        """(functions, files) of each package, those of `sql` one level deeper."""
        rooms_passed = dict[str, tuple[int, int]]()
        for name, count in self.functions.items():
            *folders, _ = PurePath(name.removeprefix(HOME)).parts
            room = "/".join(folders[: 2 if folders[:1] == ["sql"] else 1]) or "relquery"
            functions, files = rooms_passed.get(room, (0, 0))
            rooms_passed[room] = functions + count, files + 1
        return rooms_passed


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
    statements = database.execute(
        "SELECT count(*) FROM duckdb_logs WHERE type = 'QueryLog'"
    ).fetchone()
    assert statements is not None
    return int(statements[0])


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
    functions = Counter(code.co_filename for code in codes)
    return Path(functions, statements, statistics.median(seconds) * 1000)


def paths(runs: int) -> Iterator[tuple[str, Path]]:
    """What each of QUERIES goes through."""
    words = [f"review {number} of a film" for number in range(10_000)]
    columns = {"a": words, "b": [f"title {number % 100}" for number in range(10_000)]}
    table = pa.table(columns)
    wide = pa.table({f"column_{number}": [f"v{number}"] * 5 for number in range(200)})
    for name, sql in QUERIES.items():
        with connect(AtOnce(), ledger=None) as connection:
            for at, data in (("t", table), ("small", table.slice(0, 20)), ("wide", wide)):
                connection.register(at, data)
            yield name, measured(connection, sql, runs)


class Statements(Part):
    """The part."""

    name = "statements"
    title = "What a statement goes through"

    def __init__(self) -> None:
        self.paths: dict[str, Path] = {}

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        for name, path in paths(1 if settings.quick else 9):
            self.paths[name] = path
            words = name.replace(",", "").split()
            yield Figure(f"{'_'.join(words).lower()}_ms", path.milliseconds, GOALS[name], False)
        found = self.paths[FILTER]
        counts = found.functions.total(), len(found.functions), found.statements
        for (name, goal), count in zip(OF_FILTER.items(), counts, strict=True):
            yield Figure(f"filter_{name}", count, goal, False, "over 20 rows", any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("statements")
        rows = [
            (name, *map(str, (path.functions.total(), len(path.functions), path.statements)))
            for name, path in self.paths.items()
        ]
        yield from table(("statement", "functions", "files", "statements to DuckDB"), rows)
        rooms = self.paths[FILTER].rooms.items()
        ordered = sorted(rooms, key=lambda room: -room[1][0])
        yield from table(
            ("of the filter", "functions", "files"), [(a, *map(str, b)) for a, b in ordered]
        )


def main(runs: int = 9) -> None:
    """Print what each of QUERIES goes through."""
    print(f"{'':32}{'functions':>10}{'files':>7}{'statements':>12}{'ms':>9}")
    for name, path in paths(runs):
        counts = f"{path.functions.total():10}{len(path.functions):7}{path.statements:12}"
        print(f"{name:32}{counts}{path.milliseconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
