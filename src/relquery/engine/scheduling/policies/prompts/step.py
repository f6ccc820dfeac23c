"""Prompts in a given order, one or several per step: shared by the policies of paper 004."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.steps import decode


class Candidate(NamedTuple):
    """A waiting request, and how many of its tokens have to be computed."""

    request: Request
    uncached: int


def advance_and_add(
    draft: Draft, state: State, candidates: Iterable[Candidate], cost: LinearCost | None
) -> None:
    """Plan all running requests and the first candidate; with a cost, more if that pays off.

    The first is cut if it exceeds what the engine computes at once. The others are added whole or
    not at all, and none overtakes a candidate that waits for room. Requests that decode after their
    prompts join one another as long as they fit: a step can decode for many as well as for one.
    """
    decode(draft, state.running)
    if draft.preempt:
        return
    others, scoring = len(state.waiting), False
    for added, candidate in enumerate(candidates):
        request = candidate.request
        others, scoring = others - 1, scoring or request.prefill_only
        if added and scoring and not (cost and pays(candidate, len(draft.work), others, cost)):
            return
        if not draft.admit(request, whole=added > 0) or (scoring and cost is None):
            return


def pays(candidate: Candidate, members: int, others: int, cost: LinearCost) -> bool:
    """Whether it is better for a prompt to join a step than to have the next step to itself.

    Separately, a step of t(A) is followed by one of t(B); together they take t(A) + t(B) - f,
    where f is the fixed time saved by one step less. If B joins, each member of A waits
    t(B) - f longer, and B and all other waiting requests wait f less. So it pays off if
    f (1 + others) > (t(B) - f) members. (Paper 004, §6.1, never batches: there f is zero.)
    """
    alone = cost.seconds(candidate.uncached, 0, candidate.request.length - candidate.uncached)
    saved = cost.prefill_intercept
    return saved * (1 + others) > (alone - saved) * members
