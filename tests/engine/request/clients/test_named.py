"""Requests of several submits with one name are one relQuery, as long as the name is known."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.engine.request.clients import named
from relquery.engine.request.clients.declared import Declared
from relquery.engine.request.clients.named import FORGOTTEN_AFTER
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from tests.engine.harness import Harness


def submit(
    harness: Harness, group: int, name: str, rows: int | None = None, **more: Any
) -> tuple[Request, RelQuery]:
    relquery = harness.submit_rows(group, 1, 10, declared=Declared(name, rows), **more)
    return [*harness.executor.requests.values()][-1], relquery


def test_requests_of_one_name_are_one_relquery_while_it_is_open() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a")
    harness.executor.clock.advance(5.0)
    request, second = submit(harness, 1, "a")
    assert second is first
    assert (request.group, second.id, second.size, second.arrival) == (0, 0, 2, 0.0)
    assert request.arrival == 5.0
    assert submit(harness, 2, "b")[1] is not first
    assert submit(harness, 3, "a", tenant="x")[1] is not first
    harness.run()


def test_arrival_and_progress_are_kept_while_further_rows_are_expected() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a", 3)
    harness.run()
    assert not harness.engine.relqueries
    assert first.ended is not None
    before, started = first.computed_prompts, first.started
    harness.executor.clock.advance(FORGOTTEN_AFTER - 1)
    _, again = submit(harness, 1, "a", 3)
    assert again is first
    assert first.ended is None
    harness.run()
    assert (first.answered, first.arrival, first.started) == (2, 0.0, started)
    assert first.computed_prompts == 2 * before
    assert first.expected == 1


def test_it_is_forgotten_once_all_rows_have_come_and_ended() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a", 2)
    submit(harness, 1, "a", 2)
    assert submit(harness, 2, "a", 2)[1] is first  # more than was declared, while it is open
    harness.run()
    assert len(harness.engine._open.named) == 0
    assert submit(harness, 3, "a", 2)[1] is not first
    harness.run()


def test_rows_that_cannot_be_served_have_come_too() -> None:
    harness = Harness()
    submit(harness, 0, "a", 3)
    harness.engine.decline("", Declared("a", 3), 2)
    harness.run()
    assert len(harness.engine._open.named) == 0
    _, second = submit(harness, 1, "a", 3)
    harness.run()
    harness.engine.decline("", Declared("a", 3), 2)
    assert len(harness.engine._open.named) == 0
    assert second.expected == 0


def test_it_is_forgotten_after_a_while_without_open_requests() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a")
    harness.executor.clock.advance(2 * FORGOTTEN_AFTER)
    assert submit(harness, 1, "a")[1] is first  # it was open all the time
    harness.run()
    harness.executor.clock.advance(FORGOTTEN_AFTER)
    assert submit(harness, 2, "a")[1] is not first
    harness.run()


def test_only_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MOST_IDLE", 3)
    harness = Harness()
    found = {}
    for number, name in enumerate("abcdef"):
        found[name] = submit(harness, number, name, 9)[1]
        harness.run()
    assert len(harness.engine._open.named) == 3
    assert submit(harness, 10, "d", 9)[1] is found["d"]
    assert submit(harness, 11, "c", 9)[1] is not found["c"]
    harness.run()


def test_a_relquery_that_waits_for_rows_holds_no_request() -> None:
    harness = Harness()
    _, relquery = submit(harness, 0, "a", 9)
    assert len(relquery.waiting.lengths) == 1
    harness.run()
    assert relquery.waiting._array == []
    assert not relquery.running
