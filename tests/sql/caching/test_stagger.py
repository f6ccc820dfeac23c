"""Requests that write a prefix are sent some time before those that read it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery.sql.caching import staggered

GROUPS = np.array([-1, 0, 0, -1, 3, 3, -1, 6, 6])


def test_first_requests_of_groups_fill_the_gap() -> None:
    assert staggered(GROUPS, 3).tolist() == [0, 3, 6, 1, 2, 4, 5, 7, 8]


def test_nothing_waits_where_nothing_is_shared() -> None:
    assert staggered(np.full(4, -1), 10).tolist() == [0, 1, 2, 3]
    assert staggered(np.zeros(0, np.int64), 10).tolist() == []


@given(st.lists(st.integers(0, 10), max_size=30), st.integers(1, 8))
def test_every_request_is_sent_once_and_after_its_writer(choices: list[int], gap: int) -> None:
    writers = np.array(
        [choice - 1 if 0 < choice <= at else -1 for at, choice in enumerate(choices)], np.int64
    )
    order = staggered(writers, gap)
    place = np.argsort(order)
    assert sorted(order.tolist()) == list(range(len(choices)))
    early = 0
    for at, writer in enumerate(writers.tolist()):
        if writer >= 0:
            assert place[at] > place[writer]
            early = max(early, place[at] if place[at] < place[writer] + gap else 0)
    # Whoever is sent too early is so because no first request was left.
    firsts = [place[at] for at, writer in enumerate(writers.tolist()) if writer < 0]
    assert not early or max(firsts) < early
