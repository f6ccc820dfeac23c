"""What HTTP costs the machine: processor time a request, beside the engine in process."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.serve.serving import run_client, running
from benchmarks.serve.sizes import choose
from benchmarks.serve.traces import trace, written
from benchmarks.templates import template
from relquery.traces.trace import TracedQuery

WORDS = template("serve")
MODEL, POLICY = "demo", "shortest"
MODES = ("whole", "rows")
SIDES = ("HTTP", "in process")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one side took, in seconds. front, engine: processor time of the HTTP process, and of
    the engine's or the only one."""

    seconds: float
    front: float
    engine: float

    @classmethod
    def least(cls, runs: Sequence[Self]) -> Self:
        """The least of several runs: whatever else the machine does only adds."""
        return cls(
            min(run.seconds for run in runs),
            min(run.front for run in runs),
            min(run.engine for run in runs),
        )


@dataclass(slots=True)
class Overhead(Part):
    """The part."""

    name = "overhead"
    title = "What HTTP costs"
    requests: dict[str, int] = field(default_factory=dict)
    costs: dict[tuple[str, str], Cost] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        # All at once: then service time is the engine's, and nothing waits for an arrival.
        queries = [_at_once(each) for each in trace(sizes.relqueries, 100, settings.seed)]
        self.requests = {"whole": len(queries), "rows": sum(len(each.rows) for each in queries)}
        with tempfile.TemporaryDirectory() as folder:
            path = written(queries, Path(folder) / "trace.jsonl")
            for mode in MODES:
                arrivals = str(Path(folder) / "arrivals.json")
                pairs = [_measured(mode, path, arrivals) for _ in range(sizes.runs)]
                for side, runs in zip(SIDES, zip(*pairs, strict=True), strict=True):
                    self.costs[mode, side] = Cost.least(runs)
                    say(f"{mode}, {side}: {self.costs[mode, side].seconds:.1f} s")
        yield from self._figures()

    def _figures(self) -> Iterator[Figure]:
        rows, rows_alone = (self.costs["rows", side] for side in SIDES)
        beyond = rows.front + max(0.0, rows.engine - rows_alone.engine)
        note = (
            f"of {self.requests['rows']:,} requests, one a row: {rows.front:.1f} s of the HTTP "
            f"process, {rows.engine:.1f} s of the engine's, {rows_alone.engine:.1f} s in process"
        )
        each = 1e3 * beyond / self.requests["rows"]
        yield Figure("cpu_ms_per_request", each, 2.0, False, note)
        whole, alone = (self.costs["whole", side] for side in SIDES)
        share = whole.front + max(0.0, whole.engine - alone.engine)
        note = f"{share:.2f} s more for relQueries sent whole, of {alone.seconds:.1f} s of service"
        yield Figure("whole_share", share / alone.seconds, 0.05, False, note)
        note = f"{whole.seconds:.1f} s over {alone.seconds:.1f} s"
        yield Figure("whole_over_in_process", whole.seconds / alone.seconds, None, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("overhead", prompts=self.requests["rows"])
        yield from table(
            ("sent", "side", "jobs", "seconds", "HTTP process", "engine"),
            [
                (
                    mode,
                    side,
                    f"{self.requests[mode]:,}",
                    f"{cost.seconds:.1f}",
                    f"{cost.front:.2f}",
                    f"{cost.engine:.2f}",
                )
                for (mode, side), cost in self.costs.items()
            ],
        )


def _measured(mode: str, trace: str, arrivals: str) -> tuple[Cost, Cost]:
    """Over HTTP, then the same jobs in process, at the times at which they came to the server's
    engine."""
    with running(MODEL, "--policy", POLICY) as server:
        front, engine = server.cpu()
        costs = run_client("trace", server.url, MODEL, trace, mode, arrivals)
        after = server.cpu()
    http = Cost(costs["seconds"], after[0] - front, after[1] - engine)
    alone = run_client("in_process", MODEL, POLICY, trace, mode, arrivals)
    return http, Cost(alone["seconds"], 0.0, alone["cpu"])


def _at_once(query: TracedQuery) -> TracedQuery:
    return TracedQuery(
        0.0,
        query.kind,
        query.table,
        query.instruction,
        query.rows,
        query.output_limit,
        query.outputs,
    )
