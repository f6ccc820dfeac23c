"""A relQuery has one latency in three parts, and ends when its last request does."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.requests import relquery as named
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.relquery import FORGOTTEN_AFTER, Queue, RelQuery
from relquery.engine.requests.request import Request
from relquery.errors import ConfigError
from tests.cases import cases
from tests.engine.harness import Harness, for_each, numbered


def test_its_latency_is_waiting_core_and_tail() -> None:
    harness = Harness(max_num_batched_tokens=10, max_num_seqs=2)
    harness.submit(range(30), 1, group=7)
    relquery = harness.submit_rows(1, 2, 10, 3)
    ends = []
    while harness.engine.waiting or harness.engine.running:
        harness.step()
        ends.append(harness.executor.clock.now())
    # Three steps for the first prompt; then a step each for both prompts; two tokens more.
    latency = relquery.latency
    assert latency is not None
    assert relquery.started == ends[2]
    assert relquery.ended == ends[-1]
    assert latency.waiting == ends[2]
    assert latency.total == pytest.approx(ends[-1])
    assert latency.core > latency.tail > 0
    assert (relquery.size, relquery.answered, relquery.answered_tokens) == (2, 2, 6)
    assert relquery.open == 0
    assert not harness.engine.relqueries


def test_one_that_is_cancelled_before_it_is_begun_has_no_latency_and_leaves_nothing() -> None:
    harness = Harness(max_num_seqs=1)
    harness.submit_rows(0, 1, 10, 3)
    relquery = harness.submit_rows(1, 3, 10, 3)
    harness.step()
    for request in list(relquery.waiting):
        harness.engine.cancel(request)
    assert relquery.latency is None
    assert relquery.ended is not None
    assert set(harness.engine.relqueries) == {0}
    harness.run()
    assert harness.engine.pool.held == 0


def test_one_that_fails_in_part_ends_with_the_rest() -> None:
    harness = Harness()
    relquery = harness.submit_rows(0, 3, 10, 3)
    harness.step()
    harness.engine.cancel(next(iter(relquery.running)))
    harness.run()
    assert (relquery.answered, relquery.open) == (2, 0)
    assert relquery.latency is not None


def test_requests_that_come_later_belong_to_the_one_that_is_open() -> None:
    harness = Harness()
    first = harness.submit_rows(0, 1, 10, 3)
    harness.step()
    assert harness.submit_rows(0, 2, 10, 3) is first
    assert first.size == 3
    harness.run()
    assert harness.submit_rows(0, 1, 10, 3) is not first


# ---- queues


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


# ---- names


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
    assert len(first.waiting.lengths) == 1
    harness.run()
    assert not harness.engine.relqueries
    assert first.ended is not None
    assert first.waiting._array == []  # it holds no request
    before, started = first.computed_prompts, first.started
    harness.executor.clock.advance(FORGOTTEN_AFTER - 1)
    assert submit(harness, 1, "a", 3)[1] is first
    assert first.ended is None
    harness.run()
    assert (first.answered, first.arrival, first.started) == (2, 0.0, started)
    assert first.computed_prompts == 2 * before
    assert first.expected == 1


def test_it_is_forgotten_once_all_rows_have_come_and_ended_or_cannot_be_served() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a", 2)
    submit(harness, 1, "a", 2)
    assert submit(harness, 2, "a", 2)[1] is first  # more than was declared, while it is open
    harness.run()
    assert len(harness.engine._open.named) == 0
    assert submit(harness, 3, "a", 3)[1] is not first
    harness.engine.decline("", Declared("a", 3), 2)
    harness.run()
    assert len(harness.engine._open.named) == 0
    _, second = submit(harness, 4, "a", 3)
    harness.run()
    harness.engine.decline("", Declared("a", 3), 2)
    assert len(harness.engine._open.named) == second.expected == 0


def test_it_is_forgotten_after_a_while_without_open_requests() -> None:
    harness = Harness()
    _, first = submit(harness, 0, "a")
    harness.executor.clock.advance(2 * FORGOTTEN_AFTER)
    assert submit(harness, 1, "a")[1] is first  # it was open all the time
    harness.run()
    harness.executor.clock.advance(FORGOTTEN_AFTER)
    assert submit(harness, 2, "a")[1] is not first


def test_only_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MOST_IDLE", 3)
    harness, found = Harness(), {}
    for number, name in enumerate("abcdef"):
        found[name] = submit(harness, number, name, 9)[1]
        harness.run()
    assert len(harness.engine._open.named) == 3
    assert submit(harness, 10, "d", 9)[1] is found["d"]
    assert submit(harness, 11, "c", 9)[1] is not found["c"]


@for_each("given, message", cases(__file__, "declared"))
def test_what_is_out_of_range_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Declared(**given)


def test_it_travels_between_processes() -> None:
    for each in (NOTHING, Declared("monday", 100, 2.5), Declared(deadline=1)):
        assert pickle.loads(pickle.dumps(each)) == each
