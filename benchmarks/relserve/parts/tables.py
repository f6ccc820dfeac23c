"""What several parts show: mean latencies by load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.markdown import table
from benchmarks.relserve.simulated import Measured, Scheduler


def means(settings: Sequence[Measured], names: Sequence[Scheduler]) -> Iterator[str]:
    """Mean latencies of some policies; and of the clairvoyant, where it served."""
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
