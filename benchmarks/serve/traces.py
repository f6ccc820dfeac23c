"""Traces over the bundled tables, whose answers are as long as they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from relquery.demo.files import table_path
from relquery.engine.machines import SERVED
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.traces.simulate import simulate
from relquery.traces.trace import TracedQuery, at_rate, save, workload

TABLES = ("movies", "products")


def trace(count: int, rows: int, seed: int) -> list[TracedQuery]:
    """RelQueries of the five types, one a second. A simulated model never ends an answer itself."""
    tables = {name: _rows(Path(table_path(name))) for name in TABLES}
    queries = workload(tables, 1.0, count=count, rows=(1, rows), seed=seed)
    return [replace(query, outputs=(query.output_limit,) * len(query.rows)) for query in queries]


def at_load(queries: Sequence[TracedQuery], machine: str, load: float) -> list[TracedQuery]:
    """The trace at a share of the rate that fcfs can serve on a machine."""
    served = SERVED[machine]
    together = [replace(query, arrival=0.0) for query in queries]
    run = simulate(together, make_policy("fcfs", PolicySettings(served.cost)), served)
    rate = load * len(queries) / run.seconds
    return list(at_rate(queries, rate))


def faster(queries: Sequence[TracedQuery], speed: float) -> list[TracedQuery]:
    """The same relQueries, arriving faster."""
    return list(at_rate(queries, speed))


def written(queries: Sequence[TracedQuery], path: Path) -> str:
    """The file of a trace, for a client in another process."""
    save(queries, path)
    return str(path)


def _rows(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(path).to_pylist()
    return rows
