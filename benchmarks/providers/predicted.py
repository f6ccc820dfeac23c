"""What EXPLAIN (COST) foretells beside what is billed, by providers that count otherwise."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import relquery as rq
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.bill import provider_tokens, tables
from benchmarks.providers.calls import ASK, IN_FLIGHT
from benchmarks.providers.sizes import choose
from benchmarks.standin.billing import Account
from benchmarks.standin.prompt import Counter, Encode
from benchmarks.standin.provider import Provider
from benchmarks.standin.server import started
from benchmarks.templates import template

WORDS = template("providers")
WIRES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("anthropic:claude-sonnet-5", {}),
    ("openai:gpt-4o-mini", {}),
    ("openai:gpt-6-luna", {"api": "responses"}),
)
"""Models by the APIs that they are asked by: Messages, chat completions, Responses."""
QUERY = f"SELECT LLM('{ASK}', rows.*, labels := ['Yes', 'No']) AS said FROM rows"
PREVIEWED = 40
"""Rows of the preview: their answers show how many tokens the provider counts for ours."""
BEGINS, FASTER = 0.2, 4.0
"""Seconds until an answer ends, and how many times as fast the provider's clock runs: what one
request writes, those sent meanwhile do not read."""
LATER = 3600.0
"""Seconds between the preview and the run, by the provider's clock: its cache is empty again."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """USD for a table. unseen: foretold before any call. predicted: after a preview of some rows.

    billed: what the rest then cost. first: what all would have cost, as billed for the whole table
    with the preview.
    """

    table: str
    model: str
    calls: int
    unseen: float
    predicted: float
    billed: float
    all: float

    @property
    def error(self) -> float:
        """Of what was foretold after the preview, as a share of what was billed."""
        return abs(self.predicted / self.billed - 1) if self.billed else inf

    @property
    def unseen_error(self) -> float:
        """Of what was foretold before any call, as a share of what all cost."""
        return abs(self.unseen / self.all - 1) if self.all else inf


@dataclass(slots=True)
class Predicted(Part):
    """The part."""

    name = "predicted"
    title = "Predicted USD"
    found: list[Prediction] = field(default_factory=list)
    counted: str = ""

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        rows = choose(settings.quick).predicted
        encode, self.counted = provider_tokens(settings.data)
        for name, given in tables(settings.data, rows, rows):
            for model, options in WIRES:
                self.found.append(predict(name, given.slice(0, rows), model, encode, **options))
                say(" ".join(_cells(self.found[-1])))
        worst = max(self.found, key=lambda each: each.error)
        note = f"the worst is {worst.table} at {worst.model}"
        yield Figure("predicted_error", worst.error, 0.1, False, note, any_size=True)
        unseen = max(self.found, key=lambda each: each.unseen_error)
        note = f"before any call; the worst is {unseen.table} at {unseen.model}"
        yield Figure("unseen_error", unseen.unseen_error, 0.1, False, note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("predicted", counted=self.counted, previewed=PREVIEWED)
        names = (
            "table", "model", "calls", "USD before any call", "billed for all", "error",
            "USD after the preview", "billed for the rest", "error",
        )  # fmt: skip
        yield from markdown(names, map(_cells, self.found))


def _cells(one: Prediction) -> tuple[str, ...]:
    return (
        one.table,
        one.model,
        f"{one.calls:,}",
        f"{one.unseen:.4g}",
        f"{one.all:.4g}",
        f"{one.unseen_error:.1%}",
        f"{one.predicted:.4g}",
        f"{one.billed:.4g}",
        f"{one.error:.1%}",
    )


def predict(name: str, rows: pa.Table, model: str, encode: Encode, **options: Any) -> Prediction:
    """Foretell, preview, foretell and run, over HTTP."""
    account = Account(Counter(encode))
    passed = [0.0]
    standin = Provider(
        account, begins=BEGINS, ends=BEGINS, clock=lambda: FASTER * time.time() + passed[0]
    )
    with started(standin), TemporaryDirectory() as folder:
        server = standin.root if model.startswith("anthropic:") else standin.url
        options |= {"base_url": server, "api_key": "k", "max_concurrency": IN_FLIGHT}
        with rq.connect(model, ledger=Path(folder) / "run.db", **options) as con:
            con.register("rows", rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                unseen = foretold(con)
                con.preview(QUERY, rows=PREVIEWED)
                passed[0] += LATER
                before = account.totals.usd
                predicted = foretold(con)
                con.sql(QUERY)
    spent = account.totals
    return Prediction(name, model, spent.requests, unseen, predicted, spent.usd - before, spent.usd)


def foretold(con: rq.Connection) -> float:
    """USD for what the ledger does not know yet, as expected."""
    (cost,) = con.explain(QUERY, cost=True).costs.values()
    assert cost is not None
    assert cost.live is not None
    return cost.live.expected
