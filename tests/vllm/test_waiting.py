"""The queue of waiting requests beside vLLM's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("stubs")

CALLS = st.one_of(
    st.sampled_from([("add_request",), ("prepend_request",), ("pop_request",), ("peek_request",)]),
    st.tuples(st.just("remove_request"), st.integers(0, 9)),
    st.tuples(st.just("remove_requests"), st.lists(st.integers(0, 9), max_size=4, unique=True)),
    st.tuples(st.just("prepend_requests"), st.integers(0, 3)),
)


class Some:
    """A request."""


@given(st.lists(CALLS, max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_does_what_vllm_s_own_does(calls: list[Any]) -> None:
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue

    from relquery.vllm.waiting import Waiting

    own, ours = FCFSRequestQueue(), Waiting()
    for name, *how in calls:
        there = [*own]
        given: list[Any] = []
        if name in ("add_request", "prepend_request"):
            given = [Some()]
        elif name == "prepend_requests":
            given = [[Some() for _ in range(how[0])]]
        elif name == "remove_requests":
            given = [[Some(), *(there[at] for at in how[0] if at < len(there))]]
        elif name == "remove_request":
            if how[0] >= len(there):
                continue
            given = [there[how[0]]]
        elif not there:
            continue
        assert getattr(ours, name)(*given) is getattr(own, name)(*given)
        assert [*ours] == [*own]
        assert (len(ours), bool(ours)) == (len(own), bool(own))
        assert all(each in ours for each in own)


def test_an_empty_one_has_nobody() -> None:
    from relquery.vllm.waiting import Waiting

    with pytest.raises(IndexError):
        Waiting().peek_request()
    with pytest.raises(KeyError):
        Waiting().pop_request()
