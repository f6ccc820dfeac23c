"""Many queries over shared passages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans import bulk
from benchmarks.spans.bulk import Bulk
from benchmarks.spans.parts.on_model import OnModel
from benchmarks.spans.setup import PASSAGES, read_passages
from benchmarks.templates import template

WORDS = template("spans")


@dataclass(slots=True)
class Bulks(OnModel):
    """The part."""

    name = "bulks"
    title = "Bulks"
    bulks: list[Bulk] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        for name, file in PASSAGES.items():
            rows = read_passages(settings.data / file, self.sizes.queries)
            if not rows:
                note = f"{settings.data / file} is absent"
                yield Figure(name, None, bulk.GOAL, note=note)
                continue
            self.bulks.append(bulk.measure(model, name, rows, say))
            yield from bulk.figures(self.bulks[-1])

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("bulk", share=bulk.CACHE_SHARE)
        yield from table(
            ("data", "queries", "plain", "ordered", "spans, no reuse", "spans, as given", "ours"),
            [
                (
                    each.name.removeprefix("bulk_"),
                    f"{each.queries:,}",
                    *(f"{seconds:.1f}" for seconds in each.seconds),
                )
                for each in self.bulks
            ],
        )
        yield from table(
            (
                "data",
                "speedup",
                "bound in tokens",
                "reached",
                "over ordered",
                "cached as given",
                "ours",
            ),
            [
                (
                    each.name.removeprefix("bulk_"),
                    *(f"{ratio:.3f}" for ratio in (each.speedup, each.bound, each.reached)),
                    f"{each.ordered / each.ours:.3f}",
                    *(f"{cached / each.tokens:.1%}" for cached in (each.given_cached, each.cached)),
                )
                for each in self.bulks
            ],
        )
