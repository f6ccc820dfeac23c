"""Runs DuckDB's own test queries with an LLM call around and beside each.

`python -m benchmarks.sql.round_trip CHECKOUT [--every N]` goes through the sqllogictest files of a
checkout of DuckDB. A call answers with a fixed text; in DuckDB a macro of the same name stands for
it. Printed are the queries whose rows differ and those that only DuckDB runs.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from relquery.backends.base import Backend
from relquery.connection import Connection, connect
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Select

_CALL = "llm('q', 'x')"
_MACRO = "CREATE MACRO llm(prompt, field) AS 'answer'"
_PLAIN = ("skip_reload", "noforcestorage", "vector_size", "no_alternative_verify", "notwindows")
_RUNS = ("SELECT", "WITH", "FROM", "VALUES", "(", "TABLE")


class Fixed(Backend):
    """Answers every prompt with one text."""

    name = "fixed"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend."""
        del sampling
        for index in range(len(prompts)):
            yield index, Answer("answer", Finish.STOP)


@dataclass(frozen=True, slots=True)
class Record:
    """A statement of a test file, and whether it is a query that is to succeed."""

    sql: str
    is_query: bool


def records(text: str) -> Iterator[Record]:
    """The statements of a file up to the first thing that only DuckDB's test runner knows."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.strip("\n").splitlines() if not line.startswith("#")]
        if not lines:
            continue
        kind, *words = lines[0].split()
        if kind == "require" and words[:1] and words[0] in _PLAIN:
            continue
        if kind not in ("statement", "query") or "${" in block or len(words) < 1:
            return
        if kind == "statement" and words[0] != "ok":
            continue
        wanted = lines[1:]
        if "----" in wanted:
            wanted = wanted[: wanted.index("----")]
        yield Record("\n".join(wanted), kind == "query")


@dataclass(slots=True)
class Trial:
    """A database on both sides, and what was found."""

    every: int
    counts: Counter[str] = field(default_factory=Counter)
    seen: int = 0

    def run(self, path: Path) -> None:
        """Go through one file."""
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(duckdb.connect())
            other = stack.enter_context(duckdb.connect())
            ours = stack.enter_context(connect(Fixed(), database=other))
            plain.execute(_MACRO)
            for record in records(path.read_text(encoding="utf-8", errors="replace")):
                if record.is_query and record.sql.lstrip().upper().startswith(_RUNS):
                    self.seen += 1
                    if self.seen % self.every == 0:
                        self._compare(record.sql.rstrip().rstrip(";"), plain, ours, path)
                try:
                    plain.execute(record.sql)
                    other.execute(record.sql)
                except duckdb.Error:
                    return

    def _compare(self, sql: str, plain: Any, ours: Connection, path: Path) -> None:
        for kind, text in self._with_calls(sql):
            try:
                wanted, again = (_rows(plain.sql(text)) for _ in range(2))
            except (duckdb.Error, RuntimeError, OverflowError):
                continue
            if wanted != again:
                continue
            self.counts[kind] += 1
            try:
                rows = _rows(ours.sql(text))
            except Exception as error:
                self.counts[f"{kind}, refused"] += 1
                print(f"REFUSED {path.name}: {type(error).__name__} {error}\n  {text}")
            else:
                if rows != wanted:
                    self.counts[f"{kind}, different"] += 1
                    print(f"DIFFERS {path.name}\n  {text}\n  {wanted[:3]}\n  {rows[:3]}")

    def _with_calls(self, sql: str) -> Iterator[tuple[str, str]]:
        yield "around", f"SELECT *, {_CALL} AS called FROM ({sql}) AS q"
        with contextlib.suppress(Exception):
            tree = parser().query(sql)
            if isinstance(tree, Select) and not tree.is_grouped_by_all:
                tree.items = [*tree.items, parser().expression(_CALL).named("called")]
                yield "beside", parser().sql(tree)


def _rows(result: Any) -> list[str]:
    return sorted(repr(row) for row in result.fetchall())


def main() -> None:
    """Go through a checkout."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("checkout", type=Path)
    options.add_argument("--every", type=int, default=1, help="of so many queries take one")
    given = options.parse_args()
    trial = Trial(given.every)
    paths = sorted((given.checkout.resolve() / "test" / "sql").rglob("*.test"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # they write files
        for path in paths:
            with contextlib.suppress(duckdb.Error):
                trial.run(path)
    print(f"{trial.seen} queries; {dict(sorted(trial.counts.items()))}")


if __name__ == "__main__":
    main()
