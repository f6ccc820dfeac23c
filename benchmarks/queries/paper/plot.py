"""Seconds of the paper's queries by side, like paper 000's Fig. 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.queries.paper.run import NO_CACHE, OURS, TABLE_ORDER, Measured

_COLORS = {NO_CACHE: "#bab0ac", TABLE_ORDER: "#f28e2b", OURS: "#4e79a7"}
_PANELS = {
    "Filter (T1)": ("T1",),
    "Projection (T2)": ("T2",),
    "T3 and T4": ("T3", "T4"),
}


def plot(found: Sequence[Measured], path: Path) -> None:
    """Write a PNG with a panel for each kind of query. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    panels = {
        title: [each for each in found if each.query.type in types]
        for title, types in _PANELS.items()
    }
    panels = {title: shown for title, shown in panels.items() if shown}
    figure = Figure(figsize=(12, 4), layout="constrained")
    widths = [max(2, len(shown)) for shown in panels.values()]
    all_axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, (title, shown) in zip(all_axes, panels.items(), strict=True):
        for number, (side, color) in enumerate(_COLORS.items()):
            seconds = [each.ran[side].seconds for each in shown]
            places = [place + 0.27 * number for place in range(len(shown))]
            axes.bar(places, seconds, 0.27, color=color, label=side)
        for place, each in enumerate(shown):
            height = each.ran[OURS].seconds
            axes.annotate(
                f"{each.gain:.1f}×", (place + 0.54, height), ha="center", va="bottom", fontsize=8
            )
        many = len({each.query.type for each in shown}) > 1
        names = [f"{each.query.type} " * many + each.query.table for each in shown]
        axes.set_xticks([place + 0.27 for place in range(len(shown))], names, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.2)
    all_axes[0].set_ylabel("seconds")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(path, dpi=120)
