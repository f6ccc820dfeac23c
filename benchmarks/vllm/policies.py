"""A trace of relQueries through HTTP: vLLM as it is, and with policies of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve.traces import SOURCES, present
from benchmarks.relserve.traces import trace as trace_of
from benchmarks.serve.traces import faster, written
from benchmarks.templates import template
from benchmarks.vllm.clairvoyant import gain
from benchmarks.vllm.environment import BLOCK, python_of, run
from benchmarks.vllm.server import running
from relquery.traces.trace import TracedQuery

WORDS = template("vllm")
SOURCE = next(source for source in SOURCES if source.name == "movies")
PAPER, BURST = 1.45, 3.0
"""Loads: of the rate at which vLLM as it is serves all relQueries, if they come at once. Paper
003's highest, and one at which most relQueries come before many are served."""
FULL, QUICK = 100, 5
"""RelQueries."""
OWN, SHORTEST, BOUNDED = "vLLM's own", "shortest", "shortest, tail 1"
SIDES: Mapping[str, Mapping[str, Any] | None] = {
    OWN: None,
    SHORTEST: {"policy": "shortest"},
    BOUNDED: {"policy": "shortest", "tail": 1},
}
LOADS: Mapping[float, tuple[str, ...]] = {
    PAPER: (SHORTEST, BOUNDED),
    BURST: (BOUNDED, BOUNDED),
}
"""Our schedulers at each load, in turn; vLLM's own runs before and after each of them."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What the client prints."""

    latencies: tuple[float, ...]
    seconds: float
    answers: tuple[str, ...]
    prompt_tokens: int

    @classmethod
    def mean_of(cls, runs: Sequence[Ran]) -> Ran:
        """The mean of several runs; the answers are the first one's."""
        latencies = np.mean([ran.latencies for ran in runs], axis=0).tolist()
        seconds = float(np.mean([ran.seconds for ran in runs]))
        return replace(runs[0], latencies=tuple(latencies), seconds=seconds)

    @property
    def mean(self) -> float:
        return float(np.mean(self.latencies))

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latencies, 99))


@dataclass(slots=True)
class Policies(Part):
    """The part. ran: by load and side. beside: the mean of vLLM's own runs before and after those
    of a side. rates: relQueries a second. gains: of a clairvoyant one."""

    name = "policies"
    title = "Policies in a vLLM server"
    ran: dict[tuple[float, str], list[Ran]] = field(default_factory=dict)
    beside: dict[tuple[float, str], Ran] = field(default_factory=dict)
    rates: dict[float, float] = field(default_factory=dict)
    gains: dict[float, float] = field(default_factory=dict)
    requests: int = 0
    planning: dict[str, float] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        if settings.vllm is None or SOURCE not in present(settings.data):
            why = "without vLLM" if settings.vllm is None else f"without {SOURCE.file}"
            yield Figure("mean latency, vLLM's own over shortest", None, 1.8, note=why)
            return
        python = python_of(settings.vllm, say)
        count = QUICK if settings.quick else FULL
        queries = trace_of(
            SOURCE, settings.data, count=count, seed=settings.seed, sampling="shared"
        )
        self.requests = sum(len(query.rows) for query in queries)
        with TemporaryDirectory() as name:
            folder = Path(name)
            at_once = [replace(query, arrival=0.0) for query in queries]
            seconds = _run(python, OWN, at_once, folder).seconds
            say(f"{self.requests:,} requests in {seconds:.1f} s")
            for load, sides in LOADS.items():
                self.rates[load] = load * count / seconds
                arriving = faster(queries, self.rates[load])
                self.gains[load] = gain(arriving, seconds, BLOCK)
                for side in (OWN, *(neighbour for each in sides for neighbour in (each, OWN))):
                    ran = _run(python, side, arriving, folder)
                    say(f"{load:g}, {side}: mean {ran.mean:.2f} s, p99 {ran.p99:.2f} s")
                    self.ran.setdefault((load, side), []).append(ran)
                own = self.ran[load, OWN]
                for side in {*sides}:
                    places = [index for index, other in enumerate(sides) if other == side]
                    near = [round_ for each in places for round_ in own[each : each + 2]]
                    self.beside[load, side] = Ran.mean_of(near)
            file, ours = written(at_once, folder / "trace.jsonl"), json.dumps(SIDES[BOUNDED])
            self.planning = run(python, "planning", file, ours)
        yield from self._figures()

    def _figures(self) -> Iterator[Figure]:
        yield self._mean(PAPER, SHORTEST, 1.8)
        yield self._mean(PAPER, BOUNDED, None)
        yield self._mean(BURST, BOUNDED, 1.8)
        for load in LOADS:
            own, ran = self.beside[load, BOUNDED], Ran.mean_of(self.ran[load, BOUNDED])
            yield _ratio(f"p99 at {load:g}", BOUNDED, own.p99, ran.p99, 1.0)
        for load, side in ((PAPER, SHORTEST), (PAPER, BOUNDED), (BURST, BOUNDED)):
            own, ran = self.beside[load, side], Ran.mean_of(self.ran[load, side])
            yield Figure(
                f"throughput at {load:g}, {side} over vLLM's own",
                own.seconds / ran.seconds,
                0.97,
                note=f"{own.seconds:.1f} s and {ran.seconds:.1f} s for all",
            )
        same = [
            a == b
            for (load, _), runs in self.ran.items()
            for ran in runs
            for a, b in zip(self.ran[load, OWN][0].answers, ran.answers, strict=True)
        ]
        yield Figure("answers that are the same", float(np.mean(same)), 1.0, any_size=True)
        yield Figure(
            "ms of planning a step, all waiting",
            self.planning["mean"],
            1.0,
            at_least=False,
            note=f"p99 {self.planning['p99']:.2f} ms, {self.planning['steps']:.0f} steps",
        )

    def _mean(self, load: float, side: str, goal: float | None) -> Figure:
        own, ours = self.beside[load, side], Ran.mean_of(self.ran[load, side])
        return _ratio(f"mean at {load:g}", side, own.mean, ours.mean, goal)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if not self.ran:
            return
        yield WORDS.block(
            "policies", requests=self.requests, relqueries=FULL, paper=PAPER, burst=BURST,
            paper_rate=self.rates[PAPER], burst_rate=self.rates[BURST],
            paper_gain=self.gains[PAPER], burst_gain=self.gains[BURST],
        )  # fmt: skip
        yield from table(
            ("load", "scheduler", "mean", "p99", "all"),
            [
                (f"{load:g}", side, f"{ran.mean:.2f} s", f"{ran.p99:.2f} s", f"{ran.seconds:.1f} s")
                for (load, side), runs in self.ran.items()
                for ran in (Ran.mean_of(runs),)
            ],
        )


def _ratio(what: str, side: str, own: float, ours: float, goal: float | None) -> Figure:
    return Figure(
        f"{what}, vLLM's own over {side}", own / ours, goal, note=f"{own:.2f} s over {ours:.2f} s"
    )


def _run(python: Path, side: str, queries: list[TracedQuery], folder: Path) -> Ran:
    file = written(queries, folder / "trace.jsonl")
    with running(python, SIDES[side], folder / "log") as url:
        command = [sys.executable, "-m", "benchmarks.vllm.client", url, file]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Ran(
        tuple(told["latencies"]),
        told["seconds"],
        tuple(told["answers"]),
        told["prompt_tokens"],
    )
