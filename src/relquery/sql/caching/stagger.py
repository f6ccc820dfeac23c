"""An order of requests in which those that write a prefix are answered before it is read.

Waves wait until all requests of a wave are answered. Where a number of requests is under way all
the time, nobody has to wait: the first request of a group is sent, then first requests of other
groups, and those that read from it as soon as enough others have begun since.
"""

from __future__ import annotations

import heapq

import numpy as np

from relquery.arrays import Int64s


def staggered(writers: Int64s, gap: int) -> Int64s:
    """(n,), the places of requests in the order to send: a permutation.

    writers: (n,), the request that each reads from, an earlier one, or -1. gap: a request is sent
    at least so many places after the one it reads from, as long as there are others to send. About
    as many wait at any time, the longest waiting is sent first.
    """
    readers: list[list[int]] = [[] for _ in range(len(writers))]
    for at, writer in enumerate(writers.tolist()):
        if writer >= 0:
            readers[writer].append(at)
    firsts = np.flatnonzero(writers < 0).tolist()[::-1]
    waiting: list[tuple[int, int]] = []  # from which place on a request may be sent
    order = np.empty(len(writers), np.int64)
    for place in range(len(writers)):
        # Enough wait to fill the gap after the last of the first requests.
        if firsts and (len(waiting) <= gap or waiting[0][0] > place):
            sent = firsts.pop()
        else:
            _, sent = heapq.heappop(waiting)
        order[place] = sent
        for reader in readers[sent]:
            heapq.heappush(waiting, (place + gap, reader))
    return order
