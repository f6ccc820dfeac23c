"""Shared by several parts: the tables that they serve, and mean latencies by load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.harness import Say, Settings
from benchmarks.markdown import table
from benchmarks.relserve.simulated import Measured, Scheduler
from benchmarks.relserve.sizes import Sizes
from benchmarks.relserve.traces import present


def tables_and_seeds(
    settings: Settings, sizes: Sizes, say: Say
) -> tuple[list[str], tuple[int, ...]]:
    """Names of the tables to serve, empty if there are none, and the seeds for drawing traces."""
    names = [source.name for source in present(settings.data)][: sizes.tables]
    if not names:
        say(f"{settings.data} has none of the tables")
    return names, tuple(range(settings.seed, settings.seed + sizes.seeds))


def means(settings: Sequence[Measured], names: Sequence[Scheduler]) -> Iterator[str]:
    """Mean latencies of some policies, and of the clairvoyant if it was run."""
    bounded = any(each.bounds for each in settings)
    yield from table(
        ("model", "table", "load", "per second", *names, *(["clairvoyant"] if bounded else [])),
        [
            (
                each.model,
                each.table,
                f"{load:g}",
                f"{load * each.saturation:.2f}",
                *(f"{by[name]:.2f}" for name in names),
                *([f"{each.bounds[load]:.2f}"] if bounded else []),
            )
            for each in settings
            for load, by in each.means.items()
        ],
    )


def shown(ratios: dict[str, float]) -> str:
    """Ratios by setting, on one line."""
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
