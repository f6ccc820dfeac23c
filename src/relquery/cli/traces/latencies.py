"""Latencies of relQueries as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from rich.table import Table
from rich.text import Text

from relquery.errors import MissingExtraError
from relquery.traces.simulate import Run
from relquery.traces.summary import Spread, Summary

_HEADINGS = ("mean", "p50", "p99", "max", "hits", "in")
_PARTS = ("waiting", "core", "tail")


def latency_table(summaries: Mapping[str, Summary], what: str, where: str) -> Table:
    """One row per run, with the parts of its latencies below. what: heading; where: the server.

    A hit rate of NaN is unknown.
    """
    first = next(iter(summaries.values()))
    view = Table(
        title=Text(
            f"{first.relqueries:,} relQueries of {first.requests:,} requests on {where}: "
            "seconds of latency",
            style="table.title",
        ),
        show_edge=False,
        pad_edge=False,
    )
    view.add_column(what)
    for heading in _HEADINGS:
        view.add_column(heading, justify="right")
    for name, summary in summaries.items():
        view.add_row(
            Text(name),
            *_row(summary.total),
            "?" if math.isnan(summary.hit_rate) else f"{summary.hit_rate:.0%}",
            f"{summary.seconds:.0f}",
        )
        for part in _PARTS:
            view.add_row(f"  {part}", *_row(getattr(summary, part)), style="dim")
    view.caption = "hits: prompt tokens from the cache. in: seconds until the last answer."
    return view


def _row(spread: Spread) -> Iterator[str]:
    return (f"{value:.2f}" for value in (spread.mean, spread.p50, spread.p99, spread.max))


def check_picture() -> None:
    """Raises MissingExtraError where no picture can be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("A picture", "bench")


def draw(runs: Mapping[str, Run], path: Path) -> None:
    """Write a PNG of when each relQuery ran. See `check_picture`."""
    from relquery.traces.plot import plot_timeline

    plot_timeline(runs, path)
