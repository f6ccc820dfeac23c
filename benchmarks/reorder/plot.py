"""Pictures of the order's gain on each table, and of how time grows with rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.reorder.growth import Growth
from benchmarks.reorder.hits import Reached


def plot_gain(reached: Mapping[str, Sequence[Reached]], path: Path) -> None:
    """Write a PNG: the share of characters hit in each table, in the original order and in ours.

    Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="share of the text that need not be read again", xlim=(0, 1))
    height = 0.38
    for shift, method, label in (
        (0, "tree", "relquery"),
        (height, "original", "rows as they stand"),
    ):
        rates = [
            next(each.hit_rate for each in methods if each.method == method)
            for methods in reached.values()
        ]
        places = [place + shift for place in range(len(rates))]
        bars = axes.barh(places, rates, height, label=label)
        axes.bar_label(bars, [f"{rate:.0%}" for rate in rates], padding=3)
    axes.set_yticks([place + height / 2 for place in range(len(reached))], list(reached))
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)


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
