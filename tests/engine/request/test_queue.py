"""A queue keeps its order whoever leaves, and knows its lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.request.queue import Queue
from relquery.engine.request.request import Request
from tests.engine.harness import numbered


def request(number: int, tokens: int = 3) -> Request:
    return Request(number, numbered(tokens), 4)


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "put_first", "remove", "look"]), st.integers(0, 9))
    )
)
def test_it_is_an_ordered_set_that_also_takes_requests_at_the_front(
    steps: list[tuple[str, int]],
) -> None:
    queue, model = Queue(), list[Request]()
    for number, (step, argument) in enumerate(steps):
        if step == "append":
            model.append(request(number, argument + 1))
            queue.append(model[-1])
        elif step == "put_first":
            model.insert(0, request(number, argument + 1))
            queue.put_first(model[0])
        elif step == "remove" and model:
            queue.remove(model.pop(argument % len(model)))
        else:
            assert queue.lengths.tolist() == [one.length for one in model]
            assert queue.pick(range(len(model))) == model
    assert list(queue) == model
    assert len(queue) == len(model)
    assert all(one in queue for one in model)


def test_what_does_not_wait_cannot_leave() -> None:
    with pytest.raises(KeyError):
        Queue().remove(request(0))


def test_one_that_logs_says_who_joined_and_who_left_since_it_was_asked() -> None:
    queue, silent = Queue(logs=True), Queue()
    one, other = request(0), request(1)
    for each in (queue, silent):
        each.append(one)
        each.put_first(other)
        each.remove(one)
    assert queue.changes == [one, other, one]
    assert silent.changes == []
