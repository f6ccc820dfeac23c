"""When the requests of a workload arrive: user by user, as in paper 004, or shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import fmean
from typing import Literal

import numpy as np

from benchmarks.prefill_only.workloads import Workload

Pattern = Literal["users", "shuffled"]
"""users: users arrive as a Poisson process, each with all its requests, one after another.
shuffled: the requests of all users are mixed, and arrive as a Poisson process."""
SPACING = 1.0
"""Interval between two requests of a user, in units of a request's time at saturation.

The paper's code has 0.1 s, for devices that serve 6 to 12 of its posts a second each, so there the
value is 0.6 to 1.2. A user's history and posts have 21,500 uncached tokens. At two operations per
parameter and token, and at half of a device's peak, an A100 computes 2,400 tokens of Qwen-32B per
second, an L4 3,700 of Llama-3.1-8B, and an H100 5,400 of Llama-3.3-70B in 8 bits."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests arrive. spacing: in units of a request's time at saturation."""

    pattern: Pattern = "users"
    spacing: float = SPACING

    def draw(
        self, workload: Workload, load: float, saturation: float, seed: int
    ) -> tuple[float, ...]:
        """Arrival time of each request, in seconds.

        load: mean requests per second, as a multiple of saturation, which is the rate that the
        engine reaches when all requests arrive at once.
        """
        rng = np.random.default_rng((seed, 3))
        gap = 1 / (load * saturation)
        count = len(workload.prompts)
        if self.pattern == "shuffled":
            times = np.cumsum(rng.exponential(gap, count))
            return tuple(rng.permutation(times).tolist())
        users = np.array(workload.users)
        each = np.bincount(users)
        begin = np.cumsum(rng.exponential(gap * each))
        nth = np.arange(count) - np.searchsorted(users, users)
        return tuple((begin[users] + nth * self.spacing / saturation).tolist())


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
