"""Decode steps of the same requests, one after another, for which nothing is planned anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk, Drawn, Failure
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.plan import Plan
from relquery.engine.step.allocation import Holdings
from relquery.prompt import TokenLogprob


class DecodeRun:
    """The latest step, if it is repeated as long as nobody comes, waits or ends.

    Any policy would plan the same again: each running request decodes one token. Planning, and
    describing each token to the executor, is a twentieth of a step of 64; most of that is waiting
    for objects that the step has driven out of the processor's caches, so few are touched here.
    """

    def __init__(
        self, plan: Plan, chunks: Sequence[Chunk], relqueries: Mapping[int, RelQuery]
    ) -> None:
        """chunks: of the latest step, one for each work of its plan; see can_begin.

        relqueries: of the requests, by group.
        """
        self.requests = [work.request for work in plan.work]
        self.relqueries = [relqueries[request.group] for request in self.requests]
        self.context = sum(chunk.context_tokens for chunk in chunks)
        """Cached tokens that the latest step attended to."""
        self._pieces = [request.pieces[0] for request in self.requests]
        self._outputs = [request.output for request in self.requests]
        self._ends = [request.rules.end for request in self.requests]
        # An answer may end at this many tokens; with stop rules or a grammar, at any token.
        self._mosts = [
            request.max_tokens if request.rules.is_free and request.draw.matcher is None else 0
            for request in self.requests
        ]
        self._logprobs = [
            (number, request.logprobs)
            for number, request in enumerate(self.requests)
            if request.logprobs is not None
        ]
        self._slots = np.concatenate([chunk.writes for chunk in chunks])

    @property
    def tokens(self) -> list[int]:
        """Each request's newest token, which the next step computes."""
        return [output[-1] for output in self._outputs]

    def advance(self, holdings: Holdings) -> Int64s | None:
        """Slots (requests,) for the newest tokens; None if there are too few blocks for all.

        Valid until the next call.
        """
        if not holdings.continue_slots(self.requests, self._slots):
            return None
        self.context += len(self.requests)
        return self._slots

    def take_in(self, drawn: Sequence[Drawn | None]) -> list[int]:
        """Add a step's tokens to the outputs. Returns the requests whose token was not added,
        because it may end the answer or force others.

        drawn: see Executor.follow.
        """
        rest = []
        tokens = cast("Sequence[int]", drawn)
        if self._logprobs:
            tokens = [one.token if isinstance(one, TokenLogprob) else one for one in tokens]
        given = zip(tokens, self._outputs, self._ends, self._mosts, self._pieces, strict=True)
        for number, (token, output, end, most, piece) in enumerate(given):
            piece.done += 1
            is_failed = isinstance(token, Failure)
            if is_failed or token < 0 or token in end or len(output) + 1 >= most:
                rest.append(number)
            else:
                output.append(token)
                self.relqueries[number].drawn_tokens += 1
        if self._logprobs:
            self._keep_logprobs(drawn, rest)
        return rest

    def _keep_logprobs(self, drawn: Sequence[Drawn | None], rest: Collection[int]) -> None:
        """Keep those of tokens that were added. rest: the requests whose token was not."""
        others = set(rest)
        for number, kept in self._logprobs:
            told = drawn[number]
            if number not in others and isinstance(told, TokenLogprob):
                kept.append(told)


def can_begin(plan: Plan, chunks: Sequence[Sequence[Chunk]]) -> bool:
    """Whether each work of a step was one decode whose draw does not change from token to token."""
    return all(
        len(of_work) == 1
        and of_work[0].run
        and of_work[0].draw is work.request.draw
        and not work.request.draw.weigh
        for work, of_work in zip(plan.work, chunks, strict=True)
    )
