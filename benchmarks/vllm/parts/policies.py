"""A trace of relQueries through HTTP: vLLM as it is, and with a policy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.engine.sides import environment
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.serve.traces import faster, trace, written
from benchmarks.templates import template
from benchmarks.vllm.server import running
from relquery.traces.trace import TracedQuery

WORDS = template("vllm")
LOAD = 1.2
"""Of the rate at which vLLM as it is serves all relQueries, if they come at once."""
FULL, QUICK = (100, 40), (8, 6)
"""RelQueries, and the most rows of one."""
SIDES = (None, "fcfs", "shortest", "relserve")
NAMES: dict[str | None, str] = {None: "vLLM's own"}


@dataclass(frozen=True, slots=True)
class Ran:
    """What the client prints."""

    latencies: tuple[float, ...]
    seconds: float
    answers: tuple[str, ...]
    prompt_tokens: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.latencies))

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latencies, 99))


@dataclass(slots=True)
class Policies(Part):
    """The part. rate: relQueries a second."""

    name = "policies"
    title = "Policies in a vLLM server"
    ran: dict[str | None, Ran] = field(default_factory=dict)
    requests: int = 0
    rate: float = 0.0

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        if settings.vllm is None:
            yield Figure("mean latency, vLLM's own over shortest", None, 1.8, note="without vLLM")
            return
        python = environment(settings.vllm, say)
        count, rows = QUICK if settings.quick else FULL
        queries = trace(count, rows, settings.seed)
        self.requests = sum(len(query.rows) for query in queries)
        with TemporaryDirectory() as name:
            folder = Path(name)
            at_once = [replace(query, arrival=0.0) for query in queries]
            first = self._run(python, None, at_once, folder)
            self.rate = LOAD * count / first.seconds
            say(f"{self.requests:,} requests in {first.seconds:.1f} s; {self.rate:.2f} a second")
            arriving = faster(queries, self.rate)
            for policy in SIDES:
                self.ran[policy] = ran = self._run(python, policy, arriving, folder)
                say(f"{NAMES.get(policy, policy)}: mean {ran.mean:.2f} s, p99 {ran.p99:.2f} s")
        yield from self._figures()

    def _run(
        self, python: Path, policy: str | None, queries: list[TracedQuery], folder: Path
    ) -> Ran:
        file = written(queries, folder / "trace.jsonl")
        with running(python, policy, folder / "log") as url:
            command = [sys.executable, "-m", "benchmarks.vllm.client", url, file]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return Ran(
            tuple(found["latencies"]),
            found["seconds"],
            tuple(found["answers"]),
            found["prompt_tokens"],
        )

    def _figures(self) -> Iterator[Figure]:
        own, best = self.ran[None], self.ran["shortest"]
        yield Figure(
            "mean latency, vLLM's own over shortest",
            own.mean / best.mean,
            1.8,
            note=f"{own.mean:.2f} s over {best.mean:.2f} s",
        )
        yield Figure(
            "p99, vLLM's own over shortest",
            own.p99 / best.p99,
            1.0,
            note=f"{own.p99:.2f} s over {best.p99:.2f} s",
        )
        yield Figure(
            "throughput, shortest over vLLM's own",
            own.seconds / best.seconds,
            0.97,
            note=f"{own.seconds:.1f} s and {best.seconds:.1f} s for all",
        )
        same = np.mean([a == b for a, b in zip(own.answers, best.answers, strict=True)])
        yield Figure("answers that are the same", float(same), 1.0, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if not self.ran:
            return
        yield WORDS.block(
            "policies", load=LOAD, requests=self.requests, relqueries=FULL[0], rate=self.rate
        )
        yield from table(
            ("scheduler", "mean", "p99", "all"),
            [
                (
                    NAMES.get(policy, str(policy)),
                    f"{ran.mean:.2f} s",
                    f"{ran.p99:.2f} s",
                    f"{ran.seconds:.1f} s",
                )
                for policy, ran in self.ran.items()
            ],
        )
