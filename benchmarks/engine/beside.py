"""The engine beside vLLM: the same network, token ids, threads, cache and tokens of a step."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engine.jobs import Job, measures
from benchmarks.engine.network import filter_prompts, make_network
from benchmarks.engine.sides import (
    FILTER,
    OURS,
    TABLE_ORDER,
    VLLM,
    Raced,
    Seat,
    busy_process,
    environment,
    race,
    race_orders,
    started,
)
from benchmarks.engine.sizes import FULL, Sizes, choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.sql.queries import FILE
from benchmarks.templates import template

WORDS = template("engine")
DTYPES = ("bfloat16", "float32")
ANSWER = 2
"""Tokens of the filter's answers."""
LOADED = ("decode_1", "decode_64")
"""What is measured beside a busy process too."""


def goal_of(name: str, dtype: str) -> float | None:
    """What the ratio should be."""
    if name == "prefill":
        return 1.0 if dtype == "bfloat16" else 1.05
    if name.endswith("shared"):
        return 2.0
    if name.startswith("decode"):
        return 1.1
    return {"hot": 1.5, FILTER: 1.05, TABLE_ORDER: 9.0}[name]


@dataclass(slots=True)
class Beside(Part):
    """The part. raced: all that was measured; loaded: beside a busy process."""

    name = "vllm"
    title = "Beside vLLM"
    sizes: Sizes = FULL
    raced: list[Raced] = field(default_factory=list)
    loaded: list[Raced] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        pythons = {OURS: Path(sys.executable)}
        if settings.vllm is not None:
            pythons[VLLM] = environment(settings.vllm, say)
        with TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make_network(folder / "model", sizes, settings.data, settings.seed)
            for dtype in DTYPES:
                seats = [Seat(name, name, python, dtype) for name, python in pythons.items()]
                with started(seats, folder / "model", folder) as sides:
                    for each in measures(sizes, settings.seed):
                        self.raced.append(race(sides, each, dtype, sizes.rounds))
                        yield self._tell(self.raced[-1], goal_of(each.name, dtype), say)
                        if each.name in LOADED:
                            with busy_process():
                                self.loaded.append(race(sides, each, dtype, sizes.rounds))
                            yield self._tell(self.loaded[-1], 0.9, say, "_beside_a_busy_process")
                    if dtype == "bfloat16" and (settings.data / FILE).exists():
                        found = filter_prompts(folder / "model", settings.data, sizes.rows)
                        jobs = {name: Job(prompts, ANSWER) for name, prompts in found.items()}
                        for raced in race_orders(sides, jobs, dtype, 2):
                            self.raced.append(raced)
                            yield self._tell(raced, goal_of(raced.name, dtype), say)

    def _tell(self, raced: Raced, goal: float | None, say: Say, what: str = "") -> Figure:
        note = f"{raced.shown(OURS)} / {raced.shown(VLLM)}"
        name = f"{raced.name}_{raced.numbers}{what}"
        say(f"{name}: {note}")
        return Figure(name, raced.ratio(VLLM), goal, note=note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        sizes = self.sizes
        yield WORDS.block(
            "vllm",
            layers=sizes.layers,
            hidden=sizes.hidden,
            heads=sizes.heads,
            intermediate=sizes.intermediate,
            vocabulary=sizes.vocabulary,
            count=sizes.prefill[0],
            length=sizes.prefill[1],
            start=sizes.start,
            shared=sizes.shared,
            hot=sizes.hot,
            new=sizes.new,
            rows=sizes.rows,
        )
        for title, raced in (("alone", self.raced), ("beside a busy process", self.loaded)):
            yield from table(
                (title, "numbers", "relquery", "vLLM", "ratio"),
                [
                    (
                        each.name.replace("_", " "),
                        each.numbers,
                        each.shown(OURS),
                        each.shown(VLLM),
                        "-" if (ratio := each.ratio(VLLM)) is None else f"{ratio:.2f}",
                    )
                    for each in raced
                ],
            )
