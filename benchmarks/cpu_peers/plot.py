"""A picture of the filter's seconds beside those of both peers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def plot(
    ordered: Mapping[str, Mapping[str, float]],
    as_written: Mapping[str, Mapping[str, float]],
    rows: int,
    path: Path,
) -> None:
    """Write a PNG: bars for each side in each format of a file.

    ordered: seconds by side and format, of rows in relquery's order; as_written: the same in the
    table's order. Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot(
        xlabel=f"seconds for a filter over {rows} film reviews (SmolLM2-135M, two cores)"
    )
    height = 0.8 / len(ordered)
    for number, (side, seconds) in enumerate(ordered.items()):
        places = [place + number * height for place in range(len(seconds))]
        colour = f"C{number}"
        if side in as_written:
            longer = list(as_written[side].values())
            bars = axes.barh(places, longer, height, color=colour, alpha=0.4, label=side)
            axes.barh(places, list(seconds.values()), height, color=colour)
            axes.bar_label(bars, [f"{each:.1f}" for each in longer], padding=3)
        else:
            bars = axes.barh(places, list(seconds.values()), height, color=colour, label=side)
            axes.bar_label(bars, [f"{each:.1f}" for each in seconds.values()], padding=3)
    formats = list(next(iter(ordered.values())))
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(formats))], formats)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False, title="dark: in relquery's order")
    figure.savefig(path, dpi=120)
