"""Time to the first token of a judge over generations."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans import nested
from benchmarks.spans.nested import Judged
from benchmarks.spans.parts.on_model import OnModel
from benchmarks.templates import template

WORDS = template("spans")


@dataclass(slots=True)
class Nested(OnModel):
    """The part."""

    name = "nested"
    title = "Nested generations"
    judged: list[Judged] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        self.judged = list(nested.measure(model, self.sizes, settings.seed, say))
        yield from nested.figures(self.judged)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("nested", inner=self.sizes.inner_tokens)
        yield from table(
            ("inner", "temperature", "executions", "plain", "ours", "plain / ours", "1%"),
            [
                (
                    str(each.fan_out),
                    f"{each.temperature:g}",
                    str(len(each.ours)),
                    f"{1e3 * median(each.plain):.1f} ({each.plain_tokens:,})",
                    f"{1e3 * median(each.ours):.1f} ({each.our_tokens:,})",
                    f"{each.speedup:.2f}",
                    f"{each.lasting:.2f}",
                )
                for each in self.judged
            ],
        )
