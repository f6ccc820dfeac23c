"""Prompts in an order given, one a step or as many as pays: what policies of paper 004 share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.steps import decode


class Candidate(NamedTuple):
    """A request that waits, and the tokens that are to be computed of it."""

    request: Request
    uncached: int


def advance_and_add(
    draft: Draft, state: State, candidates: Iterable[Candidate], cost: LinearCost | None
) -> None:
    """Plan all that runs, and the first candidate; with a cost, more of them where it pays.

    The first is cut where it exceeds what the engine computes at once; the others go in whole or
    not at all, and nobody passes one that waits for room. Requests that decode after their prompts
    join one another as long as they fit: one step can decode for many as well as for one.
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
    """Whether a prompt had better join a step than have the next one to itself.

    Apart, a step of t(A) and one of t(B) follow one another; together they take t(A) + t(B) - f,
    where f are the fixed seconds that one step less saves. Joining lets each member of A wait
    t(B) - f more, and B and all others that wait f less. So it pays if
    f (1 + others) > (t(B) - f) members. (Paper 004, §6.1, never batches: there f is nothing.)
    """
    alone = cost.seconds(candidate.uncached, 0, candidate.request.length - candidate.uncached)
    saved = cost.prefill_intercept
    return saved * (1 + others) > (alone - saved) * members
