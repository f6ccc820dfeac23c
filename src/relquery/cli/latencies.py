"""Latencies of relQueries as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table
from rich.text import Text

from relquery.errors import MissingExtraError
from relquery.serving.simulate import Run
from relquery.serving.summary import Summary

_HEADINGS = ("mean", "p50", "p99", "max", "waiting", "core", "tail", "hits", "in")


def latency_table(summaries: Mapping[str, Summary], what: str, where: str) -> Table:
    """One run a row. what: the heading of their names; where: what served them.

    A hit rate that is no number is not known.
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
        total = summary.total
        parts = (summary.waiting.mean, summary.core.mean, summary.tail.mean)
        seconds = (total.mean, total.p50, total.p99, total.max, *parts)
        view.add_row(
            Text(name),
            *(f"{value:.2f}" for value in seconds),
            "?" if math.isnan(summary.hit_rate) else f"{summary.hit_rate:.0%}",
            f"{summary.seconds:.0f}",
        )
    view.caption = "waiting, core, tail: means of the parts. hits: prompt tokens from the cache."
    return view


def draw(runs: Mapping[str, Run], path: Path) -> None:
    """Write a PNG of when each relQuery ran. Raises MissingExtraError."""
    try:
        from relquery.serving.plot import plot_timeline

        plot_timeline(runs, path)
    except ImportError as error:
        raise MissingExtraError("A picture", "bench") from error
