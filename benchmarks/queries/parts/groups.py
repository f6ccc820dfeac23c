"""Groups that do not fit in the context: none without an answer, and calls as EXPLAIN says."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.groups.aggregate import QUESTION, Aggregated, aggregate, in_groups
from benchmarks.queries.network import train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.demo.files import table_path
from relquery.prompt import Sampling

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
        self.found.append(at := aggregate(model, rows))
        say(f"{at.calls} calls, EXPLAIN says {at.said}")
        yield from figures(at)

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
                    for number in (at.groups, at.missing, at.calls, at.said, at.prompt_tokens)
                )
                for at in self.found
            ],
        )


def figures(at: Aggregated) -> Iterator[Figure]:
    """Groups without an answer, and calls beside those that EXPLAIN says."""
    note = f"of {at.groups}"
    yield Figure("groups_missing", at.missing, 0.0, at_least=False, note=note, any_size=True)
    note = f"{at.calls} calls; EXPLAIN says {at.said}"
    off = abs(at.calls - at.said)
    yield Figure("groups_calls_off", off, 0.0, at_least=False, note=note, any_size=True)
