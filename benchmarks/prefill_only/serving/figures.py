"""The figures from the services of both workloads."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmarks.harness import Figure
from benchmarks.prefill_only.serving import traffic
from benchmarks.prefill_only.serving.clairvoyant import (
    first_in,
    service_seconds,
    shortest_remaining,
)
from benchmarks.prefill_only.serving.traffic import Served, Traffic


def traffic_figures(posts: Traffic, shuffled: Traffic, credits: Traffic) -> Iterator[Figure]:
    """Figures at the highest load, unless stated otherwise."""
    yield from _posts(posts, shuffled)
    yield from _credits(credits)
    equal = min(each.equal for each in (posts, shuffled, credits))
    note = f"labels, and log-probabilities within {traffic.CLOSE:g}, in every service"
    yield Figure("equal_answers", equal, 1.0, note=note, any_size=True)


def _posts(posts: Traffic, shuffled: Traffic) -> Iterator[Figure]:
    chunked, fifo, srjf = (posts.highest[mode] for mode in traffic.SWEPT)
    each = [first.mean / ours.mean for first, ours in zip(fifo.runs, srjf.runs, strict=True)]
    note = (
        f"{fifo.mean:.2f} s / {srjf.mean:.2f} s, {min(each):.2f} to {max(each):.2f} in "
        f"{len(each)} draws of arrivals; chunked: {chunked.mean / srjf.mean:.2f}"
    )
    yield Figure("wl1_fifo_over_srjf_mean", fifo.mean / srjf.mean, 3.0, note=note)
    by_load = {load: by["fifo"].mean / by["srjf"].mean for load, by in posts.loads.items()}
    note = "fifo over srjf; " + ", ".join(f"{x:.2f} at {load:g} x" for load, x in by_load.items())
    yield Figure("wl1_least_gain", min(by_load.values()), 1.0, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s"
    yield Figure("wl1_p99", srjf.p99 / fifo.p99, 1.0, False, note)
    note = f"{srjf.throughput:.2f} / {chunked.throughput:.2f} requests/s (srjf, chunked)"
    yield Figure("wl1_throughput", srjf.throughput / chunked.throughput, 1.4, note=note)
    fifo, srjf = shuffled.highest["fifo"], shuffled.highest["srjf"]
    note = f"requests of all users shuffled: {fifo.mean:.2f} s / {srjf.mean:.2f} s"
    yield Figure("wl1_shuffled_fifo_over_srjf", fifo.mean / srjf.mean, None, note=note)


def _credits(credits: Traffic) -> Iterator[Figure]:
    chunked, fifo, srjf = (credits.highest[mode] for mode in traffic.SWEPT)
    bounds = [bound(run) for run in srjf.runs]
    least, first = (fmean(means) for means in zip(*bounds, strict=True))
    note = f"{srjf.mean:.2f} s / {least:.2f} s, the least that any order could have"
    yield Figure("wl2_srjf_over_clairvoyant", srjf.mean / least, 1.05, False, note)
    note = "what any order could gain, by the seconds that each request took under srjf"
    yield Figure("wl2_fifo_over_clairvoyant", first / least, None, note=note)
    note = f"{fifo.mean:.2f} s / {srjf.mean:.2f} s, as measured"
    yield Figure("wl2_fifo_over_srjf", fifo.mean / srjf.mean, None, note=note)
    note = f"{chunked.mean:.2f} s / {srjf.mean:.2f} s"
    yield Figure("wl2_chunked_over_srjf", chunked.mean / srjf.mean, 1.0, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s; over chunked {srjf.p99 / chunked.p99:.2f}"
    yield Figure("wl2_p99", srjf.p99 / fifo.p99, 1.1, False, note)


def bound(run: Served) -> tuple[float, float]:
    """A lower bound on the mean latency of any order, and the mean of first in, first out, from the
    seconds for which each request was served."""
    seconds = service_seconds(run.arrivals, run.latencies)
    return shortest_remaining(run.arrivals, seconds), first_in(run.arrivals, seconds)
