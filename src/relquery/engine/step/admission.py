"""Admission of requests: how long it is, and whether its relQuery can be in time."""

from __future__ import annotations

from collections.abc import Collection

from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Experience, Memo, Ordering, State, forecast
from relquery.errors import DeadlineError, PromptTooLongError, RequestError


def room_for(request: Request, limits: EngineConfig, capacity: int) -> int:
    """Tokens that the answer to a request may have, whatever else is served.

    capacity: tokens that the cache holds. Raises PromptTooLongError or RequestError if the request
    can never be served.
    """
    prompt, size = request.prompt_tokens, limits.block_size
    if prompt == 0:
        raise RequestError("The prompt has no tokens; give it at least one character.")
    if len(request.pieces[-1].tokens) == 0:
        raise RequestError(
            "The prompt ends with an independent span, so nothing attends to all of it. "
            "Add ordinary text after the span."
        )
    # Each piece but the last may leave the rest of a block empty.
    lost = sum(-len(piece.tokens) % size for piece in request.pieces[:-1])
    room = capacity - lost - prompt
    if room <= 0 and not _ends_at_once(request, limits):
        raise _too_long(request, limits, max(capacity - lost, 1))
    return max(room, 1)


def _ends_at_once(request: Request, limits: EngineConfig) -> bool:
    """Whether one step can take the whole request, whatever is cached."""
    longest = limits.max_input or 0
    return request.prefill_only and request.prompt_tokens <= longest


def _too_long(request: Request, limits: EngineConfig, room: int) -> PromptTooLongError:
    tokens, longest = request.prompt_tokens, limits.max_input or 0
    if request.prefill_only and longest + 1 > room:
        return PromptTooLongError(tokens, longest + 1, "a step", "Raise max_input or memory.")
    return PromptTooLongError(tokens, room, "the KV cache", "Raise cache_tokens.")


def order_of(state: State, memo: Memo) -> Collection[RelQuery]:
    """The open relQueries in the order in which a policy serves them now. memo: the policy's."""
    known = memo.order(state) if isinstance(memo, Ordering) else None
    return known or state.relqueries.values()


def check_deadline(
    relquery: RelQuery, state: State, memo: Memo, cost: LinearCost, experience: Experience
) -> None:
    """Raise DeadlineError if an open relQuery cannot have its last answer before its deadline.

    It is served either in its turn or, if the policy heeds deadlines, before all without an earlier
    deadline. Answers are assumed to have the usual length; as long as that is not known, one token,
    so that only what is impossible is ruled out.
    """
    assert relquery.deadline is not None
    orders = [order_of(state, memo)]
    if isinstance(memo, Ordering):
        orders.append(memo.order_if_pressed(state, relquery.deadline))
    usual = experience.usual_length or 0.0
    seconds = min(
        forecast(order, relquery.id, state.limits, cost, experience, usual) for order in orders
    )
    left = relquery.deadline - state.now
    if seconds > left:
        raise DeadlineError(seconds, left)
