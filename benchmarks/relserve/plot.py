"""The pictures of `scripts/bench relserve`, like paper 003's Fig. 9 to 12."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.relserve.checks import Threshold
from benchmarks.relserve.simulated import ABLATIONS, POLICIES, Measured, Scheduler

_COLORS: dict[Scheduler, str] = {
    "fcfs": "#888888",
    "sarathi": "#b07aa1",
    "static": "#f28e2b",
    "static-chunked": "#edc948",
    "relserve": "#4e79a7",
    "shortest": "#59a14f",
}
_PARTS = (("waiting", "#d9d9d9"), ("core", "#4c78a8"), ("tail", "#f58518"))


def plot_latencies(settings: Sequence[Measured], path: Path) -> None:
    """Mean latency over the load, a panel for each model and table (Fig. 9). Writes a PNG.

    Raises ImportError without matplotlib, like the others.
    """
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(each.model for each in settings))
    tables = list(dict.fromkeys(each.table for each in settings))
    figure = Figure(figsize=(3.4 * len(tables), 2.6 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), len(tables), squeeze=False)
    for each in settings:
        panel = panels[models.index(each.model), tables.index(each.table)]
        for name in POLICIES:
            means = [means[name] for means in each.means.values()]
            panel.plot(list(each.means), means, "o-", ms=3, color=_COLORS[name], label=name)
        panel.set_title(f"{each.model}, {each.table}", fontsize=9)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.2)
    figure.supxlabel("load, as a share of what fcfs serves at most", fontsize=9)
    figure.supylabel("seconds", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), fontsize=8)
    figure.savefig(path, dpi=110)


def plot_arrangements(settings: Sequence[Measured], path: Path) -> None:
    """RelServe and its variants, normalised to it, at the highest load (Fig. 10)."""
    from matplotlib.figure import Figure

    names = ("relserve", *ABLATIONS)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panel = figure.add_subplot(ylabel="mean latency, relserve = 1")
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        bars = [each.highest[name] / each.highest["relserve"] for each in settings]
        places = [place + number * width for place in range(len(settings))]
        panel.bar(places, bars, width, label=name)
    panel.set_xticks(
        [place + 0.4 - width / 2 for place in range(len(settings))],
        [f"{each.model.removeprefix('a100-')}\n{each.table}" for each in settings],
        fontsize=7,
    )
    panel.axhline(1, color="k", lw=0.5)
    panel.legend(fontsize=8, ncols=len(names))
    figure.savefig(path, dpi=110)


def plot_parts(setting: Measured, path: Path) -> None:
    """Waiting, core and tail of each policy at the highest load (Fig. 11)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    panel = figure.add_subplot(ylabel="seconds", title=f"{setting.model}, {setting.table}")
    bottom = [0.0] * len(POLICIES)
    for number, (part, color) in enumerate(_PARTS):
        heights = [setting.parts[name][number] for name in POLICIES]
        panel.bar(POLICIES, heights, bottom=bottom, color=color, label=part)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    panel.legend()
    figure.savefig(path, dpi=110)


def plot_thresholds(rows: Sequence[Threshold], path: Path) -> None:
    """Mean and maximum latency by starvation threshold (Fig. 12)."""
    from matplotlib.figure import Figure

    loads = list(dict.fromkeys(row.load for row in rows))
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, what in zip(panels, ("mean", "worst"), strict=True):
        for load in loads:
            chosen = [row for row in rows if row.load == load]
            labels = ["none" if row.seconds is None else f"{row.seconds:g}" for row in chosen]
            panel.plot(labels, [getattr(row, what) for row in chosen], "o-", label=f"load {load:g}")
        panel.set_title({"mean": "mean latency", "worst": "maximum latency"}[what], fontsize=10)
        panel.set_xlabel("threshold, seconds for each request")
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=110)
