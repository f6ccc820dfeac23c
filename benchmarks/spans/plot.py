"""A picture of the cost of moving a span, by its size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.spans.moves import QUERIES, Moved


def plot(moved: Sequence[Moved], path: Path) -> None:
    """Write a PNG: milliseconds over the span's size, both logarithmic.

    Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    sizes = [each.tokens for each in moved]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        yscale="log",
        xlabel="tokens of the span",
        ylabel="milliseconds, all layers",
        title="A cached span at another position",
    )
    axes.plot(sizes, [each.plain for each in moved], "x-", label="where it was computed")
    axes.plot(sizes, [each.queries for each in moved], "o-", label=f"{QUERIES} queries rotated")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.2)
    axes.legend()
    figure.savefig(path, dpi=120)
