"""A bound for any order of service, computed from the time and arrival of each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from statistics import fmean


def service_seconds(arrivals: Sequence[float], latencies: Sequence[float]) -> list[float]:
    """Seconds for which each request was served, in a service that is never idle while requests
    wait and takes one at a time: from its arrival, or the end of the previous request, to its end.
    """
    ends = [arrival + latency for arrival, latency in zip(arrivals, latencies, strict=True)]
    seconds = [0.0] * len(ends)
    free = 0.0
    for number in sorted(range(len(ends)), key=ends.__getitem__):
        seconds[number] = ends[number] - max(free, arrivals[number])
        free = ends[number]
    return seconds


def shortest_remaining(arrivals: Sequence[float], seconds: Sequence[float]) -> float:
    """Mean latency if the request with the least remaining work is always served first.

    No order has a lower mean, as long as requests take the same time in all orders (Schrage, 1968).
    """
    return fmean(_latencies(arrivals, seconds))


def _latencies(arrivals: Sequence[float], seconds: Sequence[float]) -> Iterator[float]:
    waiting: list[tuple[float, int]] = []
    now = 0.0
    order = sorted(range(len(arrivals)), key=arrivals.__getitem__)
    for place, number in enumerate(order):
        now = max(now, arrivals[number])
        heappush(waiting, (seconds[number], number))
        until = arrivals[order[place + 1]] if place + 1 < len(order) else float("inf")
        while waiting and now < until:
            left, shortest = heappop(waiting)
            if now + left > until:
                heappush(waiting, (left - (until - now), shortest))
                now = until
            else:
                now += left
                yield now - arrivals[shortest]


def first_in(arrivals: Sequence[float], seconds: Sequence[float]) -> float:
    """Mean latency if requests are served in order of arrival."""
    now, total = 0.0, 0.0
    for number in sorted(range(len(arrivals)), key=arrivals.__getitem__):
        now = max(now, arrivals[number]) + seconds[number]
        total += now - arrivals[number]
    return total / len(arrivals)
