"""What becomes of a query whose provider fails: each kind of fault, for some rows and for all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import relquery as rq
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.sizes import choose
from benchmarks.standin.errors import KINDS, Faults, Kind
from benchmarks.standin.provider import Provider
from benchmarks.standin.server import started
from benchmarks.templates import template
from relquery.errors import ModelError

WORDS = template("providers")
MODELS = ("openai:gpt-4o-mini", "anthropic:claude-sonnet-5")
SOME = 0.2
IN_FLIGHT = 16
BEYOND = 20
"""Requests after which a fault of all rows must have stopped a query, beside those under way."""
SAID = "Yes"
DEADLINE, TOTAL = 20.0, 40.0
"""Seconds for a prompt with all its tries, and for the whole query."""
LATE = 2.0
"""Seconds that a query may take beyond TOTAL, to begin and to end."""
CALLS = 3
"""The budget, in calls for each row."""
OPTIONS: dict[str, Any] = {
    "api_key": "k",
    "max_concurrency": IN_FLIGHT,
    "max_retries": 1,
    "timeout": 2.0,
    "deadline": DEADLINE,
    "total_timeout": TOTAL,
}


@dataclass(frozen=True, slots=True)
class Run:
    """A query under a fault. stopped: why it ended before its rows; empty if it did not.

    values, errors: rows with each. wrong: values that the provider did not answer.
    """

    model: str
    kind: Kind
    share: float
    rows: int
    values: int
    errors: int
    wrong: int
    requests: int
    seconds: float
    stopped: str

    @property
    def lost(self) -> int:
        """Rows that have neither a value nor an error."""
        return 0 if self.stopped else self.rows - self.values - self.errors


@dataclass(slots=True)
class Failing(Part):
    """The part."""

    name = "faults"
    title = "Faults"
    runs: list[Run] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        rows = choose(settings.quick).failing
        run(MODELS[0], "500", 0.0, 2)  # loops are compiled
        for model in MODELS:
            for share in (SOME, 1.0):
                for kind in KINDS:
                    self.runs.append(run(model, kind, share, rows))
                    say(" ".join(_cells(self.runs[-1])))
        lost = sum(each.lost for each in self.runs)
        yield Figure("rows_lost", lost, 0, False, f"in {len(self.runs)} queries", any_size=True)
        wrong = sum(each.wrong for each in self.runs)
        yield Figure("rows_wrong", wrong, 0, False, f"in {len(self.runs)} queries", any_size=True)
        over = sum(each.requests > CALLS * each.rows for each in self.runs)
        note = f"of {CALLS} calls a row"
        yield Figure("queries_over_budget", over, 0, False, note, any_size=True)
        longest = max(self.runs, key=lambda each: each.seconds)
        note, most = f"the longest is for {longest.kind}, with {TOTAL:g} s to end in", TOTAL + LATE
        yield Figure("seconds_of_a_query", longest.seconds, most, False, note, any_size=True)
        alike = [each for each in self.runs if each.share == 1 and each.kind != "429"]
        worst = max(alike, key=lambda each: each.requests)
        beyond = max(0, worst.requests - IN_FLIGHT)
        yield Figure("calls_if_all_fail", beyond, BEYOND, False, f"the most are for {worst.kind}")
        silent = [each for each in alike if not each.stopped]
        note = ", ".join(sorted({each.kind for each in silent})) or "all say why"
        yield Figure("all_fail_and_not_stopped", len(silent), 0, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            "faults",
            some=f"{SOME:.0%}",
            in_flight=IN_FLIGHT,
            deadline=f"{DEADLINE:g}",
            total=f"{TOTAL:g}",
            calls=CALLS,
        )
        names = ("model", "fault", "of", "rows", "values", "errors", "requests", "seconds", "end")
        yield from markdown(names, map(_cells, self.runs))


def _cells(run: Run) -> tuple[str, ...]:
    numbers = (run.rows, run.values, run.errors, run.requests)
    end = run.stopped.split(". ")[0] or "all rows"
    return (
        run.model,
        run.kind,
        f"{run.share:.0%}",
        *map(str, numbers),
        f"{run.seconds:.1f}",
        end.replace("|", "/"),
    )


def run(model: str, kind: Kind, share: float, rows: int) -> Run:
    """Ask about each row of a table while a provider fails."""
    standin = Provider(faults=Faults(kind, share), answer=lambda sent: SAID)
    table = pa.table({"row": [f"row number {row}" for row in range(rows)]})
    values, errors, stopped = list[str | None](), 0, ""
    began = time.perf_counter()
    with started(standin):
        server = standin.root if model.startswith("anthropic:") else standin.url
        with rq.connect(model, base_url=server, budget=f"{CALLS * rows} calls", **OPTIONS) as con:
            con.register("t", table)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = con.sql("SELECT LLM('Is it good? Answer Yes or No.', t.*) AS a FROM t")
                values = result.arrow().column("a").to_pylist()
                errors = len(result.errors)
            except ModelError as error:
                stopped = str(error)
        seconds = time.perf_counter() - began
    given = [value for value in values if value is not None]
    wrong = sum(value != SAID for value in given)
    asked = len(standin.prompts)
    return Run(model, kind, share, rows, len(given), errors, wrong, asked, seconds, stopped)
