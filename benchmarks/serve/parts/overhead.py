"""What HTTP costs the machine: processor time a request, beside the engine in process."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Cost:
    """What one side took. requests: or jobs. front: processor seconds of the HTTP process."""

    requests: int
    seconds: float
    front: float
    engine: float


@dataclass(slots=True)
class Overhead(Part):
    """The part."""

    name = "overhead"
    title = "What HTTP costs"
    prompts: int = 0
    costs: dict[tuple[str, str], Cost] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        # All at once: then service time is the engine's, and nothing waits for an arrival.
        queries = [_at_once(each) for each in trace(sizes.relqueries, 100, settings.seed)]
        self.prompts = sum(len(query.rows) for query in queries)
        with tempfile.TemporaryDirectory() as folder:
            path = written(queries, Path(folder) / "trace.jsonl")
            for mode in MODES:
                arrivals = str(Path(folder) / "arrivals.json") if mode == "rows" else ""
                self._measure(mode, path, arrivals, len(queries))
                for side in ("HTTP", "in process"):
                    say(f"{mode}, {side}: {self.costs[mode, side].seconds:.1f} s")
        yield from self._figures()

    def _measure(self, mode: str, path: str, arrivals: str, relqueries: int) -> None:
        """Over HTTP, then the same jobs in process, at the times at which they came to the engine
        of the server."""
        with running(MODEL, "--policy", POLICY) as server:
            front, engine = server.cpu()
            found = run_client("trace", server.url, MODEL, path, mode, arrivals)
            after = server.cpu()
        requests = relqueries if mode == "whole" else self.prompts
        self.costs[mode, "HTTP"] = Cost(
            requests, found["seconds"], after[0] - front, after[1] - engine
        )
        alone = run_client("in_process", MODEL, POLICY, path, arrivals)
        self.costs[mode, "in process"] = Cost(requests, alone["seconds"], 0.0, alone["cpu"])

    def _figures(self) -> Iterator[Figure]:
        rows, rows_alone = self.costs["rows", "HTTP"], self.costs["rows", "in process"]
        beyond = rows.front + max(0.0, rows.engine - rows_alone.engine)
        note = (
            f"of {rows.requests:,} requests, one a row: {rows.front:.1f} s of the HTTP process, "
            f"{rows.engine:.1f} s of the engine's process, {rows_alone.engine:.1f} s in process"
        )
        yield Figure("cpu_ms_per_request", 1e3 * beyond / rows.requests, 2.0, False, note)
        whole, alone = self.costs["whole", "HTTP"], self.costs["whole", "in process"]
        share = whole.front + max(0.0, whole.engine - alone.engine)
        note = f"{share:.2f} s more for relQueries sent whole, of {alone.seconds:.1f} s of service"
        yield Figure("whole_share", share / alone.seconds, 0.05, False, note)
        note = f"{whole.seconds:.1f} s over {alone.seconds:.1f} s"
        yield Figure("whole_over_in_process", whole.seconds / alone.seconds, None, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("overhead", prompts=self.prompts)
        yield from table(
            ("sent", "side", "jobs", "seconds", "HTTP process", "engine"),
            [
                (
                    *names,
                    f"{cost.requests:,}",
                    f"{cost.seconds:.1f}",
                    f"{cost.front:.2f}",
                    f"{cost.engine:.2f}",
                )
                for names, cost in self.costs.items()
            ],
        )


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
