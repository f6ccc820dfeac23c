"""Groups that do not fit in the context: none without an answer, and calls as EXPLAIN says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.network import Reciting, train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.config import EngineConfig
from relquery.connection import connect
from relquery.demo.files import table_path
from relquery.prompt import Sampling

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

QUESTION = "What do people praise?"
QUERY = f"SELECT film, AI_AGG('{QUESTION}', review) AS praised FROM reviews GROUP BY film"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """said, calls: calls as EXPLAIN says, and as made. groups, missing: how many groups there are,
    and how many have no answer. prompt_tokens: of all calls."""

    said: int
    calls: int
    groups: int
    missing: int
    prompt_tokens: int


def in_groups(texts: Sequence[str], groups: int, characters: int) -> list[Row]:
    """Rows of groups with so many characters, from texts that are used again and again."""
    rows: list[Row] = []
    index = 0
    for group in range(groups):
        left = characters
        while left > 0:
            text = texts[index % len(texts)][:left]
            rows.append({"film": f"film {group}", "review": text})
            left -= len(text)
            index += 1
    return rows


def aggregate(model: ServedModel, rows: Sequence[Row]) -> Aggregated:
    """Explain the query and run it."""
    backend = Reciting(_praised, model, EngineConfig())
    with closing(backend), closing(connect(backend, form="json", ledger=None)) as connection:
        connection.register("reviews", list(rows))
        (said,) = connection.explain(QUERY).calls
        result = connection.sql(QUERY)
    answers = [row[1] for row in result.fetchall()]
    return Aggregated(
        said.calls or 0,
        result.report.calls,
        len(answers),
        answers.count(None),
        result.report.prompt_tokens,
    )


def _praised(prompt: str, fields: Mapping[str, Any]) -> str:
    del prompt
    return f"People praise {len(fields['texts'])} things: the plot, the cast and the music."


WORDS = template("queries")


@dataclass(slots=True)
class Groups(Part):
    """The part."""

    name = "groups"
    title = "Groups that do not fit in the context"
    sizes: Sizes = FULL
    found: list[Aggregated] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        texts = pq.read_table(table_path("movies")).column("reviewcontent").to_pylist()
        rows = in_groups(texts, self.sizes.groups, self.sizes.characters)
        model = train(self.sizes.narrow, rows, [QUESTION], self.sizes.vocabulary)
        self.found.append(aggregated := aggregate(model, rows))
        say(f"{aggregated.calls} calls, EXPLAIN says {aggregated.said}")
        yield from figures(aggregated)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            "groups",
            groups=self.sizes.groups,
            characters=self.sizes.characters,
            model=self.sizes.narrow,
            max_tokens=Sampling().max_tokens,
        )
        yield from table(
            ("groups", "without an answer", "calls", "EXPLAIN", "prompt tokens"),
            [
                tuple(
                    f"{number:,}"
                    for number in (
                        aggregated.groups,
                        aggregated.missing,
                        aggregated.calls,
                        aggregated.said,
                        aggregated.prompt_tokens,
                    )
                )
                for aggregated in self.found
            ],
        )


def figures(at: Aggregated) -> Iterator[Figure]:
    """Groups without an answer, and calls beside those that EXPLAIN says."""
    note = f"of {at.groups}"
    yield Figure("groups_missing", at.missing, 0.0, at_least=False, note=note, any_size=True)
    note = f"{at.calls} calls; EXPLAIN says {at.said}"
    off = abs(at.calls - at.said)
    yield Figure("groups_calls_off", off, 0.0, at_least=False, note=note, any_size=True)
