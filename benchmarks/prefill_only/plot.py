"""The pictures of `scripts/bench prefill-only`, like paper 004's Fig. 6, 7, 10 and 11."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.prefill_only.lengths import Lengths
from benchmarks.prefill_only.serving.aging import Sweep
from benchmarks.prefill_only.serving.traffic import MODES, Mode, Traffic

_COLORS: dict[Mode, str] = {
    "chunked": "#888888",
    "fifo": "#b07aa1",
    "srjf-static": "#f28e2b",
    "srjf-calibrated": "#59a14f",
    "srjf": "#4e79a7",
}


def plot_loads(traffic: Sequence[Traffic], what: str, path: Path) -> None:
    """Latency over requests per second, a panel for each workload (Fig. 6 and 7). Writes a PNG.

    what: "mean" or "p99". Raises ImportError without matplotlib, like the others.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(traffic), 3.2), layout="constrained")
    for panel, each in zip(
        figure.subplots(1, len(traffic), squeeze=False)[0], traffic, strict=True
    ):
        for mode in MODES:
            points = [
                (load * each.saturation, getattr(by[mode], what))
                for load, by in each.loads.items()
                if mode in by
            ]
            panel.plot(*zip(*points, strict=True), "o-", ms=4, color=_COLORS[mode], label=mode)
        panel.set_title(each.workload.name, fontsize=10)
        panel.set_xlabel("requests per second")
        panel.set_ylabel(f"{what} latency, seconds")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.2)
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def plot_aging(sweep: Sweep, path: Path) -> None:
    """The distribution of a workload's latencies by λ (Fig. 11)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    panel = figure.add_subplot(xlabel="latency, seconds", ylabel="share of requests")
    for row in sweep.aged:
        latencies = np.sort(row.served.latencies)
        shares = np.arange(1, len(latencies) + 1) / len(latencies)
        panel.step(latencies, shares, where="post", label=f"λ = {row.aging:g}")
    panel.grid(alpha=0.2)
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def plot_lengths(at: Lengths, path: Path) -> None:
    """The longest prompt by what each technique adds (Fig. 10)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    panel = figure.add_subplot(xlabel="tokens of the longest prompt")
    names = list(at.longest)
    bars = panel.barh(names, [at.tokens(name) for name in names], color="#4e79a7")
    panel.bar_label(bars, [f"{at.tokens(name):,}" for name in names], padding=3, fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.15)
    figure.savefig(path, dpi=110)
