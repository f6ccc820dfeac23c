"""Decode steps of the same requests, one after another, for which nothing is planned anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk
from relquery.engine.scheduling.plan import Plan
from relquery.engine.step.allocation import Holdings


class DecodeRun:
    """The latest step, if it is repeated as long as nobody comes, waits or ends.

    Any policy would plan the same again: each running request decodes one token. What planning
    takes and what describes each token to the executor is a twentieth of a step of 64.
    """

    def __init__(self, plan: Plan, chunks: Sequence[Chunk]) -> None:
        """chunks: of the latest step, one for each work of its plan; see can_begin."""
        self.plan = plan
        self._requests = [work.request for work in plan.work]
        self._slots = np.concatenate([chunk.writes for chunk in chunks])
        self._context = sum(chunk.context_tokens for chunk in chunks)

    @property
    def tokens(self) -> list[int]:
        """Each request's newest token, which the next step computes."""
        return [request.output[-1] for request in self._requests]

    @property
    def decodes(self) -> int:
        """Tokens that a step computes."""
        return len(self._requests)

    @property
    def context(self) -> int:
        """Cached tokens that the latest step attended to."""
        return self._context

    def advance(self, holdings: Holdings) -> Int64s | None:
        """Slots (requests,) for the newest tokens; None if there are too few blocks for all.

        Valid until the next call.
        """
        if not holdings.continue_slots(self._requests, self._slots):
            return None
        self._context += self.decodes
        return self._slots


def can_begin(plan: Plan, chunks: Sequence[Sequence[Chunk]]) -> bool:
    """Whether each work of a step was one decode whose draw does not change from token to token."""
    return all(
        len(of_work) == 1 and of_work[0].run and of_work[0].draw is work.request.draw
        for work, of_work in zip(plan.work, chunks, strict=True)
    )
