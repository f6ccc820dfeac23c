"""The document of `relquery bench prefill-only`: what was measured, as Markdown with pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relquery.bench.harness import Figure, Say
from relquery.bench.markdown import draw, figures, head, table
from relquery.bench.prefill_only import aging, batching, jct, lengths, words, workloads
from relquery.bench.prefill_only import filter as sql_filter
from relquery.bench.prefill_only import plot as pictures
from relquery.bench.prefill_only.traffic import AGING, Traffic
from relquery.bench.relserve.queue import Crowded
from relquery.engine.cost import LinearCost

NAME = "prefill_only.md"
_PICTURES = {
    "means": "Mean latency over load",
    "p99": "99th percentile over load",
    "aging": "Latencies by λ",
    "lengths": "Longest input by technique",
}


@dataclass(slots=True)
class Results:
    """All of a run, filled in as it is measured.

    scales: of the posts and of the inputs. proportional: the network in which prompts are timed.
    crowded: by how requests wait.
    """

    model: str
    scales: tuple[float, float]
    parameters: int = 0
    proportional: str = ""
    figures: list[Figure] = field(default_factory=list)
    cost: LinearCost | None = None
    traffic: list[Traffic] = field(default_factory=list)
    aged: list[aging.Sweep] = field(default_factory=list)
    proxies: list[jct.Proxy] = field(default_factory=list)
    batched: list[batching.Batched] = field(default_factory=list)
    crowded: dict[str, list[Crowded]] = field(default_factory=dict)
    waiting: int = 0
    lengths: lengths.Lengths | None = None
    filtered: list[sql_filter.Filtered] = field(default_factory=list)


def write(folder: Path, results: Results, run: dict[str, Any], seed: int, say: Say) -> None:
    """Write the document and its pictures into `folder`; run: what harness.document gives."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name for name, plot in _plots(results) if draw(plot, folder / _file(name), say)}
    (folder / NAME).write_text(render(results, run, seed, drawn), encoding="utf-8")
    say(f"wrote {folder / NAME}")


def render(results: Results, run: dict[str, Any], seed: int, drawn: set[str]) -> str:
    """The whole document, which shows the pictures that were drawn."""
    parts = (
        head("prefill-only", run, seed),
        _setting(results),
        figures(run),
        _lengths(results, drawn),
        _traffic(results, drawn),
        _aging(results, drawn),
        _jct(results),
        _batching(results),
        _crowded(results),
        _filter(results),
    )
    return "\n".join(line for part in parts for line in part)


def _plots(results: Results) -> Iterator[tuple[str, Callable[[Path], None]]]:
    if results.lengths is not None:
        yield "lengths", partial(pictures.plot_lengths, results.lengths)
    if results.traffic:
        yield "means", partial(pictures.plot_loads, results.traffic, "mean")
        yield "p99", partial(pictures.plot_loads, results.traffic, "p99")
    if results.aged:
        yield "aging", partial(pictures.plot_aging, results.aged[0])


def _file(name: str) -> str:
    return f"prefill_only_{name}.png"


def _picture(name: str, drawn: set[str]) -> Iterator[str]:
    if name in drawn:
        yield f"![{_PICTURES[name]}]({_file(name)})\n"


def _setting(results: Results) -> Iterator[str]:
    cost = results.cost
    if cost is not None:
        yield words.SETTING.format(
            model=results.model,
            parameters=results.parameters / 1e6,
            fixed=1e3 * cost.prefill_intercept,
            slope=1e3 * cost.prefill_slope,
            speed=1 / cost.prefill_slope,
        )


def _lengths(results: Results, drawn: set[str]) -> Iterator[str]:
    if results.lengths is None:
        return
    yield words.LENGTHS
    yield from _picture("lengths", drawn)
    yield from table(lengths.COLUMNS, lengths.rows(results.lengths))


def _traffic(results: Results, drawn: set[str]) -> Iterator[str]:
    if not results.traffic or results.cost is None:
        return
    posts, credits = results.traffic
    scale, inputs_scale = results.scales
    low, high = (workloads.scaled(length, inputs_scale) for length in workloads.LENGTHS)
    yield words.TRAFFIC.format(
        scale=scale,
        inputs_scale=inputs_scale,
        posts=len(posts.workload.prompts),
        users=posts.workload.groups,
        history=workloads.scaled(workloads.HISTORY[0], scale),
        post=workloads.scaled(workloads.POST, scale),
        posts_cache=posts.workload.cache_tokens,
        credits=len(credits.workload.prompts),
        low=low,
        high=high,
        credits_cache=credits.workload.cache_tokens,
        posts_rate=posts.saturation,
        credits_rate=credits.saturation,
        chunk=posts.workload.chunk,
        inputs_chunk=credits.workload.chunk,
        aging=AGING,
        tokens=AGING / results.cost.prefill_slope,
        rounds=len(posts.highest["srjf"].runs),
        inputs_rounds=len(credits.highest["srjf"].runs),
    )
    yield from _picture("means", drawn)
    yield from _picture("p99", drawn)
    for each in results.traffic:
        yield from _services(each)
    yield words.DIFFERENT


def _services(at: Traffic) -> Iterator[str]:
    yield from table(
        (at.workload.name, "per second", "policy", "mean", "p99", "requests/s", "cached"),
        [
            (
                f"{load:g} x",
                f"{load * at.saturation:.2f}",
                mode,
                f"{run.mean:.2f}",
                f"{run.p99:.2f}",
                f"{run.throughput:.2f}",
                f"{run.cached:.0%}",
            )
            for load, by in at.loads.items()
            for mode, run in by.items()
        ],
    )


def _aging(results: Results, drawn: set[str]) -> Iterator[str]:
    if not results.aged:
        return
    yield words.AGING.format(workload=results.aged[0].workload)
    yield from _picture("aging", drawn)
    yield from table(aging.COLUMNS, aging.rows(results.aged))


def _jct(results: Results) -> Iterator[str]:
    if results.proxies:
        yield words.JCT.format(paper=jct.PAPER, model=results.proportional)
        yield from table(jct.COLUMNS, jct.rows(results.proxies))


def _batching(results: Results) -> Iterator[str]:
    if results.batched:
        yield words.BATCHING.format(cached=results.batched[0].cached, others=batching.OTHERS)
        yield from table(batching.COLUMNS, batching.rows(results.batched))


def _crowded(results: Results) -> Iterator[str]:
    if not results.crowded:
        return
    yield words.CROWDED.format(waiting=results.waiting)
    yield from table(
        ("waiting as", "policy", "mean", "at most", "first step"),
        [
            (kind, row.policy, f"{row.mean:.2f}", f"{row.worst:.1f}", f"{row.first:.0f}")
            for kind, rows in results.crowded.items()
            for row in rows
        ],
    )


def _filter(results: Results) -> Iterator[str]:
    if results.filtered:
        yield words.FILTER
        yield from table(sql_filter.COLUMNS, sql_filter.rows(results.filtered))
