"""Whether a relQuery can have its last answer in time."""

from __future__ import annotations

from collections.abc import Collection

from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.plan import Memo, Ordering, State
from relquery.engine.step.forecast import Experience, forecast
from relquery.errors import DeadlineError


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
