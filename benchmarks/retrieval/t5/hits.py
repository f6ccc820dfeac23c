"""Hit rates of the query: on the engine, the most that any cache could reach, and by characters as
the solver says and as `bench reorder` counts.

All prompts begin with the same text, which a cache serves in any order. Rates of the fields alone
leave it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.queries.network import Reciting
from benchmarks.queries.paper.queries import Query
from benchmarks.reorder.hits import hit_rate, prompts, reorder_as_told
from benchmarks.reorder.tables import TABLES
from benchmarks.retrieval.t5.run import Squad
from relquery.backends.base import Answers
from relquery.config import EngineConfig, Order
from relquery.connection import connect
from relquery.prompt import Prompt, Sampling
from relquery.report import Report

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


@dataclass(frozen=True, slots=True)
class Hits:
    """Shares from 0 to 1, in our order but for the first.

    before: as measured, in the order as retrieved. measured: of tokens that the engine served from
    its cache. most: of tokens, if each beginning
    that prompts share were computed once. of_fields: as measured, of the fields alone. predicted:
    by the solver, of the characters of the fields. counted: likewise, by `bench reorder` over the
    same rows; None where passages were searched.
    """

    before: float
    measured: float
    most: float
    of_fields: float
    predicted: float
    counted: float | None = None

    @property
    def reached(self) -> float:
        """Of what any cache could reach."""
        return self.measured / self.most


class Recording(Reciting):
    """Keeps the prompts."""

    sent: Sequence[Prompt] = ()

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""
        self.sent = list(prompts)
        return super().answer(self.sent, sampling)


def measure(model: ServedModel, squad: Squad, query: Query) -> Hits:
    """Run the query in both orders, with the shortest answers."""
    before, _ = _run(model, squad, query, "original")
    report, (head, *tokens) = _run(model, squad, query, "tree")
    begin = len(tokens) * _shared(tokens[0], head)
    return Hits(
        before=before.hit_rate,
        measured=report.hit_rate,
        most=sum(_shared(*pair) for pair in pairwise(sorted(tokens))) / report.prompt_tokens,
        of_fields=(report.cached_tokens - begin) / (report.prompt_tokens - begin),
        predicted=report.stages[0].phr,
    )


def _run(
    model: ServedModel, squad: Squad, query: Query, order: Order
) -> tuple[Report, list[list[int]]]:
    """The report, and token ids: of a prompt without fields, and of each prompt sent."""
    with (
        closing(Recording(query.answer, model, EngineConfig())) as backend,
        closing(connect(backend, ledger=None, order=order, form="json")) as connection,
    ):
        for name, table in squad.tables().items():
            connection.register(name, table)
        report = connection.sql(query.sql(shorter=query.calls[0].tokens)).report
        prompts = [backend.sent[0][:2], *backend.sent]
        return report, [_tokens(backend, prompt) for prompt in prompts]


def beside_reorder(hits: Hits, squad: Squad) -> Hits:
    """With the hit rate of `bench reorder` over the rows of the file."""
    (known,) = (each for each in TABLES if each.name == "squad")
    schedule = reorder_as_told(known, squad.rows, "tree")
    return replace(hits, counted=hit_rate(prompts(squad.rows, known.bags, schedule)))


def _tokens(backend: Recording, prompt: Prompt) -> list[int]:
    runs = backend.runs(prompt)
    assert runs is not None, "an engine knows its tokens"
    tokens: list[int] = runs[0].tolist()
    return tokens


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
