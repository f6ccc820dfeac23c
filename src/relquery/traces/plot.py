"""A picture of when each relQuery waited and ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relquery.traces.simulate import Run

_PARTS = (("waiting", "#d9d9d9"), ("core", "#4c78a8"), ("tail", "#f58518"))


def plot_timeline(runs: Mapping[str, Run], path: Path) -> None:
    """Write a PNG: a row of bars per policy, a bar per relQuery from its arrival to its end.

    Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 1 + 2.6 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        outcomes = sorted(run.outcomes, key=lambda outcome: outcome.query.arrival)
        begin = [outcome.query.arrival for outcome in outcomes]
        for part, color in _PARTS:
            lengths = [getattr(outcome.latency, part) for outcome in outcomes]
            axis.barh(range(len(outcomes)), lengths, left=begin, height=1.0, color=color)
            begin = [start + length for start, length in zip(begin, lengths, strict=True)]
        mean = sum(run.latencies()) / max(len(outcomes), 1)
        axis.set_title(f"{name}: {mean:.2f} s on average", loc="left", fontsize=10)
        axis.set_ylabel("relQuery")
        axis.invert_yaxis()
    axes[-1].set_xlabel("seconds")
    legend = [Patch(color=color, label=part) for part, color in _PARTS]
    figure.legend(handles=legend, loc="outside upper right", ncols=len(_PARTS))
    figure.savefig(path, dpi=120)
