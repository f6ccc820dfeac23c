"""The queue of waiting requests beside a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.vllm.scheduler import Waiting

SOME = st.lists(st.integers(0, 9), max_size=4, unique=True)
CALLS = st.one_of(
    st.sampled_from([("add_request",), ("prepend_request",), ("pop_request",), ("peek_request",)]),
    st.tuples(st.just("remove_request"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["remove_requests", "prepend_requests"]), SOME),
)
LIKE: dict[str, Callable[..., Any]] = {
    "add_request": list.append,
    "prepend_request": lambda queue, one: queue.insert(0, one),
    "prepend_requests": lambda queue, some: queue.__setitem__(slice(0, 0), some[::-1]),
    "pop_request": lambda queue: queue.pop(0),
    "peek_request": lambda queue: queue[0],
    "remove_request": list.remove,
    "remove_requests": lambda queue, some: queue.__setitem__(
        slice(None), [each for each in queue if each not in some]
    ),
}


@given(st.lists(CALLS, max_size=60))
def test_it_does_what_a_list_does(calls: list[Any]) -> None:
    like, ours = list[object](), Waiting()
    for name, *how in calls:
        given: list[Any] = []
        if name in ("add_request", "prepend_request"):
            given = [object()]
        elif name == "prepend_requests":
            given = [[object() for _ in how[0]]]
        elif name == "remove_requests":
            given = [[object(), *(like[at] for at in how[0] if at < len(like))]]
        elif not like or (how and how[0] >= len(like)):
            continue
        elif how:
            given = [like[how[0]]]
        assert getattr(ours, name)(*given) is LIKE[name](like, *given)
        assert [*ours] == like
        assert (len(ours), bool(ours)) == (len(like), bool(like))
        assert all(each in ours for each in like)
        assert object() not in ours


def test_an_empty_one_has_nobody() -> None:
    with pytest.raises(IndexError):
        Waiting().peek_request()
    with pytest.raises(KeyError):
        Waiting().pop_request()
