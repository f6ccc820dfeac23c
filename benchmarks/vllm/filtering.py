"""A filter by `vllm:NAME`, in our order and in the table's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine.network import make_network
from benchmarks.engine.sizes import choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.sql.queries import FILE
from benchmarks.templates import template
from benchmarks.vllm.environment import python_of, run

WORDS = template("vllm")
ROUNDS = 3


@dataclass(slots=True)
class Filtering(Part):
    """The part. found: by order."""

    name = "filter"
    title = "A filter in process"
    found: dict[str, Any] = field(default_factory=dict)
    rows: int = 0

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        path = settings.data / FILE
        if settings.vllm is None or not path.exists():
            why = "without vLLM" if settings.vllm is None else f"without {FILE}"
            yield Figure("filter, table order over ours", None, 6.0, note=why)
            return
        python, sizes = python_of(settings.vllm, say), choose(settings.quick)
        self.rows = sizes.rows
        with TemporaryDirectory() as name:
            network = Path(name)
            make_network(network, sizes, settings.data, settings.seed)
            rounds = 1 if settings.quick else ROUNDS
            self.found = run(
                python, "filtering", str(network), str(path), str(sizes.rows), str(rounds)
            )
        theirs, ours = self.found["original"], self.found["tree"]
        yield Figure(
            "filter, table order over ours",
            theirs["seconds"] / ours["seconds"],
            6.0,
            note=f"{theirs['seconds']:.1f} s over {ours['seconds']:.1f} s; its tokens allow "
            f"{_computed(theirs) / _computed(ours):.2f}",
        )
        answered = theirs["errors"] == ours["errors"] == 0
        yield Figure("rows with an answer", float(answered), 1.0, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if not self.found:
            return
        yield WORDS.block("filter", rows=self.rows, rounds=ROUNDS)
        yield from table(
            ("order", "seconds", "calls", "prompt tokens", "cached"),
            [
                (
                    {"original": "the table's", "tree": "ours"}[order],
                    f"{each['seconds']:.1f}",
                    f"{each['calls']:,}",
                    f"{each['prompt_tokens']:,}",
                    f"{each['cached_tokens'] / each['prompt_tokens']:.1%}",
                )
                for order, each in self.found.items()
            ],
        )


def _computed(found: Any) -> int:
    return int(found["prompt_tokens"] - found["cached_tokens"])
