"""A bound for comparison: shortest remaining time first, knowing every answer's length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from relquery.arrays import Floats
from relquery.engine.cost import LinearCost
from relquery.engine.machines import Served
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Policy
from relquery.engine.scheduling.policies.relserve import RelServe
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.engine.scheduling.policies.shortest import Shortest
from relquery.traces.simulate import simulate
from relquery.traces.trace import TracedQuery


class Known(Remaining):
    """The remaining work of a relQuery by true answer lengths. lengths: by request number.

    decode_share: the share of a decode step's fixed seconds that a relQuery is charged. 1: as if it
    ran alone; less: because others run at the same time; None: divided by the running relQueries.
    """

    def __init__(
        self, cost: LinearCost, lengths: Mapping[int, int], decode_share: float | None
    ) -> None:
        fixed = cost.decode_intercept * (1.0 if decode_share is None else decode_share)
        charged = replace(cost, decode_intercept=fixed)
        super().__init__(charged, sample=1_000, shared=decode_share is None)
        self._lengths = lengths

    def left(self, request: Request) -> float:
        """See Remaining."""
        return self._lengths[request.id] - len(request.output)

    def outputs(self, relquery: RelQuery) -> Floats:
        """See Remaining."""
        return np.array([self.left(request) for request in relquery.waiting], np.float64)


def clairvoyant(traces: Sequence[Sequence[TracedQuery]], served: Served) -> float:
    """Mean latency over some traces, in seconds, of the best of six clairvoyant schedulers.

    Whether steps mix prompts and decodes, and how a step's fixed cost is shared, changes which
    relQuery is the shortest. The best choice is not known, so all are tried.
    """
    return min(
        fmean(
            fmean(simulate(queries, make(served.cost, known), served).latencies())
            for queries in traces
            for known in (Known(served.cost, _lengths(queries), share),)
        )
        for make in (_shortest, _relserve)
        for share in (1.0, 0.2, None)
    )


def _lengths(queries: Sequence[TracedQuery]) -> dict[int, int]:
    return dict(enumerate(output for query in queries for output in query.outputs))


def _shortest(cost: LinearCost, known: Known) -> Policy:
    return Shortest(cost, remaining=known)


def _relserve(cost: LinearCost, known: Known) -> Policy:
    return RelServe(cost, remaining=known)
