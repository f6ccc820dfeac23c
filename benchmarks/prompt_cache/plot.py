"""A picture of the time to the first token by the tokens of a prompt's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.prompt_cache.first_token import FirstToken

MARKS = {"plain": "o-", "disk": "s-", "memory": "d-", "hit": "^-"}


def plot(found: Mapping[str, Sequence[FirstToken]], path: Path) -> None:
    """Write a PNG with one panel for each model. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(found), 4.5), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, found.items(), strict=True):
        for side, mark in MARKS.items():
            lengths = [row.tokens for row in rows]
            axes.plot(lengths, [1e3 * row.seconds[side] for row in rows], mark, label=side)
        axes.set(xlabel="tokens of modules", ylabel="ms to the first token", title=name)
        axes.set(yscale="log")
        axes.grid(alpha=0.2)
        axes.legend()
    figure.savefig(path, dpi=120)
