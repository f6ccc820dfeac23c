"""A relQuery that cannot be done in time is refused, and leaves nothing behind."""

from __future__ import annotations

import pickle

import pytest

from relquery.config import POLICIES, PolicyName
from relquery.engine.loop import Loop
from relquery.engine.request.clients.declared import Declared
from relquery.engine.request.request import Request
from relquery.errors import DeadlineError, RequestError
from tests.engine.harness import numbered
from tests.engine.step.test_forecast import loop_of


def submit(
    loop: Loop, group: int, rows: int, deadline: float | None, limit: int = 10
) -> list[Request]:
    """Prompts of 30 tokens: 0.03 s each; a token of all answers takes 0.03 s or more."""
    requests = []
    for row in range(rows):
        request = Request(1000 * group + row, numbered(30, start=row), limit, group=group)
        loop.submit(request, declared=Declared(deadline=deadline))
        requests.append(request)
    return requests


def accepts(loop: Loop, group: int, rows: int, deadline: float, limit: int = 10) -> bool:
    requests = submit(loop, group, rows, deadline, limit)
    try:
        loop.check_deadline(loop.relqueries[group])
    except DeadlineError:
        for request in requests:
            loop.withdraw(request)
        return False
    return True


@pytest.mark.parametrize("policy", POLICIES)
def test_what_can_be_in_time_by_itself_is_accepted_and_otherwise_refused(
    policy: PolicyName,
) -> None:
    loop = loop_of(policy)
    submit(loop, 0, 2, None)
    list(loop.run())  # answers have their maximum length, so far
    assert not accepts(loop, 1, 10, 0.55)
    assert not loop.relqueries
    assert not loop.waiting
    assert accepts(loop, 2, 10, 0.7)
    requests = list(loop.run())
    assert all(request.error is None for request in requests)
    assert len(requests) == 10


@pytest.mark.parametrize(
    ("policy", "accepted"), [("fcfs", False), ("shortest", True), ("static", True)]
)
def test_the_order_of_the_policy_decides(policy: PolicyName, accepted: bool) -> None:
    loop = loop_of(policy)
    submit(loop, 0, 2, None)
    list(loop.run())
    submit(loop, 1, 60, None)  # 2.1 s
    assert accepts(loop, 2, 5, 1.0) == accepted
    assert accepts(loop, 3, 70, 4.0) == accepted  # the largest, but it will be pressed
    assert len(loop.relqueries) == 1 + 2 * accepted


def test_earlier_deadlines_are_in_the_way_and_later_ones_are_not() -> None:
    loop = loop_of("shortest")
    submit(loop, 0, 2, None)
    list(loop.run())
    assert accepts(loop, 1, 30, 2.0)  # 1.2 s
    assert not accepts(loop, 2, 40, 2.1)
    assert accepts(loop, 3, 40, 1.9)


def test_as_long_as_no_answer_was_seen_only_the_impossible_is_refused() -> None:
    loop = loop_of("shortest")
    assert accepts(loop, 1, 1, 0.2, limit=1000)
    assert not accepts(loop, 2, 10, 0.2, limit=1000)
    list(loop.run())


def test_where_costs_are_not_known_nothing_is_refused() -> None:
    loop = loop_of("fcfs")
    loop._cost = None
    assert accepts(loop, 0, 10, 1e-9)
    (*requests,) = loop.run()
    assert all("deadline" in str(request.error) for request in requests)


def test_the_error_says_how_long_it_would_take_and_travels() -> None:
    error = DeadlineError(12.345, 3.0)
    assert isinstance(error, RequestError)
    assert error.estimate == 12.345
    assert "in 12.3 s, but the deadline is in 3 s" in str(error)
    assert "passed 0.5 s ago" in str(DeadlineError(12.345, -0.5))
    again = pickle.loads(pickle.dumps(error))
    assert (again.estimate, str(again)) == (error.estimate, str(error))


def test_a_refused_submit_leaves_a_named_relquery_as_it_was() -> None:
    loop = loop_of("shortest")
    submit(loop, 0, 2, None)
    list(loop.run())
    declared = Declared("a", 40, 1.5)
    first = Request(1, numbered(30), 10, group=1)
    relquery = loop.submit(first, declared=declared)
    before = relquery.size, relquery.prompt_tokens, relquery.output_limit, relquery.deadline
    late = [Request(2 + row, numbered(30), 1000, group=2) for row in range(5)]
    for request in late:
        assert loop.submit(request, declared=declared) is relquery
    with pytest.raises(DeadlineError):
        loop.check_deadline(relquery)
    for request in late:
        loop.withdraw(request)
    after = relquery.size, relquery.prompt_tokens, relquery.output_limit, relquery.deadline
    assert after == before
    assert list(loop.run()) == [first]
    assert first.error is None
