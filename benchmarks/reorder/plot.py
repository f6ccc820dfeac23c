"""The growth of time with rows, as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reorder.growth import Growth


def plot(growth: Sequence[Growth], path: Path) -> None:
    """Write a PNG: seconds over rows, both logarithmic, beside n log n.

    Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    sizes = [each.rows for each in growth]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        yscale="log",
        xlabel="rows of 10 columns",
        ylabel="seconds",
        title="relquery.reorder(table, weight='tokens')",
    )
    seconds = [each.default for each in growth]
    axes.plot(sizes, seconds, "o-", label="tree")
    axes.plot(sizes, [each.unsearched for each in growth], "s-", label="tree, no time to search")
    axes.plot(sizes, [each.encoding for each in growth], "^-", label="encoding, before either")
    axes.plot(sizes, _n_log_n(sizes, seconds[0]), "k--", label="n log n")
    axes.grid(which="both", alpha=0.2)
    axes.legend()
    figure.savefig(path, dpi=120)


def _n_log_n(sizes: Sequence[int], first: float) -> list[float]:
    """Through the first point."""
    work = [size * math.log(size) for size in sizes]
    return [first * each / work[0] for each in work]
