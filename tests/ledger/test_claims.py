"""Claims on keys: of several that want the same answer, one asks, and the others wait for it."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from relquery.backends.base import Answers
from relquery.connection import connect
from relquery.ledger import Keys, Ledger, StoredCall, Turn, turns
from relquery.ledger.claims import LEASE, Claims
from relquery.prompt import Answer, Finish, Prompt, Sampling, Span
from tests.ledger.test_ledger import write_earlier

PROMPTS = [(Span(f"question {number}"),) for number in range(6)]
KEYS = Keys.of("m", PROMPTS, Sampling())
CALL = StoredCall("m", Sampling())
YES = Answer("yes", Finish.STOP)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(path: Path, clock: Callable[[], float] | None = None) -> Iterator[tuple[Ledger, Claims]]:
    with closing(Ledger.open(path)) as ledger:
        if clock is not None:
            ledger.clock = clock
        assert ledger.claims is not None
        yield ledger, ledger.claims


def all_at_once(prompts: Sequence[int]) -> tuple[list[Prompt], np.ndarray]:
    return [PROMPTS[at] for at in prompts], np.array(prompts, np.int64)


def answer_all(turn: Turn) -> list[int]:
    for index, prompt in enumerate(turn.prompts):
        assert isinstance(prompt[0].content, str)
        turn.on_answer(index, Answer(prompt[0].content, Finish.STOP))
    return [int(place) for place in turn.places]


def never(seconds: float) -> None:
    raise AssertionError("waited")


def test_a_key_is_its_first_owners_until_it_is_given_back(path: Path) -> None:
    with opened(path) as (_, one), opened(path) as (_, other):
        first, second = one.prepare(), other.prepare()
        assert one.take(first, KEYS.whole[:3]) == set(KEYS.whole[:3])
        assert other.take(second, KEYS.whole[2:5]) == set(KEYS.whole[3:5])
        assert other.free(KEYS.whole) == {KEYS.whole[5]}
        one.give_back(first, KEYS.whole[:1])
        one.give_back(first, KEYS.whole[3:4])  # of another: nothing happens
        assert other.free(KEYS.whole) == {KEYS.whole[0], KEYS.whole[5]}
        one.forget(first)
        assert other.take(second, KEYS.whole) == set(KEYS.whole)


def test_claims_hold_as_long_as_the_lease_is_renewed(path: Path) -> None:
    clock = Clock()
    with opened(path, clock) as (_, one), opened(path, clock) as (_, other):
        first, second = one.prepare(), other.prepare()
        one.take(first, KEYS.whole[:1])
        clock.now += LEASE - 1
        one.renew(first)
        clock.now += LEASE - 1
        assert other.free(KEYS.whole[:1]) == set()
        assert other.take(second, KEYS.whole[:1]) == set()
        clock.now += 1
        assert other.free(KEYS.whole[:1]) == set(KEYS.whole[:1])
        assert other.take(second, KEYS.whole[:1]) == set(KEYS.whole[:1])
        one.renew(first)  # comes too late: the claim is the other's
        assert one.take(first, KEYS.whole[:1]) == set()


def test_claims_of_a_process_that_has_ended_are_taken_over_at_once(path: Path) -> None:
    with opened(path) as (ledger, claims):
        claims.take(claims.prepare(), KEYS.whole[:2])
        ended = subprocess.Popen(["true"])
        ended.wait()
        for change, free in ((f"process = {ended.pid}", KEYS.whole[:2]), ("host = 'x'", [])):
            ledger.write(
                lambda sql=f"UPDATE owners SET {change}": ledger.connection.execute(sql)  # type: ignore[misc]
            )
            assert claims.free(KEYS.whole[:2]) == set(free)


def test_a_claim_ends_with_the_answer_or_with_the_failure(path: Path) -> None:
    with opened(path) as (ledger, _), opened(path) as (other, claims):
        prompts, places = all_at_once([0, 1, 2])
        with turns(prompts, places, ledger, KEYS, CALL, never) as some:
            turn = next(some)
            assert claims.free(KEYS.whole) == set(KEYS.whole[3:])
            turn.on_answer(0, YES)
            turn.on_answer(1, Answer(None, Finish.ERROR, "no"))
        assert claims.free(KEYS.whole) == set(KEYS.whole)
        assert set(other.find(KEYS)) == {0}
        rows = other.connection.execute("SELECT * FROM claims UNION ALL SELECT 1, 2 FROM owners")
        assert rows.fetchall() == []


def test_what_another_asks_is_waited_for_and_taken(path: Path) -> None:
    with opened(path) as (one, _), opened(path) as (other, _):
        prompts, places = all_at_once([0, 1, 2, 3])
        with turns(prompts, places, one, KEYS, CALL, never) as firsts:
            first, slept, asked = next(firsts), [0], []

            def sleep(seconds: float) -> None:
                slept[0] += 1
                if slept[0] <= 4:  # answers come one by one
                    first.on_answer(4 - slept[0], YES)

            prompts, places = all_at_once([5, 3, 2, 1, 0, 4])
            known: dict[int, Answer] = {}
            with turns(prompts, places, other, KEYS, CALL, sleep) as seconds:
                for turn in seconds:
                    known |= turn.known
                    asked += answer_all(turn)
    assert asked == [5, 4]
    assert known == {at: Answer("yes", Finish.STOP, attempts=0) for at in range(4)}


def test_what_another_gives_back_without_an_answer_is_asked(path: Path) -> None:
    asked, known = list[int](), set[int]()
    with (
        opened(path) as (one, _),
        opened(path) as (other, _),
        turns(*all_at_once([0, 1, 2, 3]), one, KEYS, CALL, never) as firsts,
    ):
        first = next(firsts)
        first.on_answer(2, YES)
        end: list[Callable[[], object]] = [
            lambda: first.on_answer(1, Answer(None, Finish.ERROR, "the server is down")),
            lambda: next(firsts, None),  # cancelled: two were never answered
        ]
        with turns(*all_at_once([3, 2, 1, 0]), other, KEYS, CALL, lambda _: None) as seconds:
            for turn in seconds:
                known |= set(turn.known)
                asked += answer_all(turn)
                if end:
                    end.pop(0)()
    assert sorted(asked) == [0, 1, 3]
    assert known == {2}


def test_a_lease_is_taken_over_where_its_owner_stands_still(path: Path) -> None:
    clock = Clock()
    with opened(path, clock) as (one, claims), opened(path, clock) as (other, _):
        claims.take(claims.prepare(), KEYS.whole[:2])  # and nothing renews it

        def sleep(seconds: float) -> None:
            clock.now += LEASE / 4

        with turns(*all_at_once([0, 1]), other, KEYS, CALL, sleep) as some:
            assert [answer_all(turn) for turn in some] == [[], [0, 1]]
        assert clock.now == 1000 + LEASE
        assert set(one.find(KEYS)) == {0, 1}


def test_threads_that_ask_in_opposite_orders_end_and_ask_each_once(path: Path) -> None:
    count, asked = 40, list[int]()
    prompts: list[Prompt] = [(Span(f"{number}"),) for number in range(count)]
    keys, together = Keys.of("m", prompts, Sampling()), Barrier(4)

    def ask(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(count)
        with closing(Ledger.open(path)) as ledger:
            together.wait()
            for some in np.array_split(order, 5):
                with turns([prompts[at] for at in some], some, ledger, keys, CALL) as parts:
                    for turn in parts:
                        asked.extend(answer_all(turn))

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(ask, seed) for seed in range(4)]:
            done.result(60)
    assert sorted(asked) == list(range(count))


def test_answers_decided_by_different_texts_are_asked_one_after_the_other(path: Path) -> None:
    whole = KEYS.whole
    yes, no = (Keys(whole, Keys.of(name, PROMPTS, Sampling()).whole) for name in ("yes", "no"))
    decided = Answer("Y", Finish.DECIDED)
    with opened(path) as (one, _), opened(path) as (other, _):
        with turns(*all_at_once([0]), one, yes, CALL, never) as firsts:
            first = next(firsts)
            with turns(
                *all_at_once([0]), other, no, CALL, lambda _: first.on_answer(0, decided)
            ) as seconds:
                assert [answer_all(turn) for turn in seconds] == [[], [0]]
        assert one.find(no)[0].text == "question 0"


def test_without_a_file_that_can_be_written_nothing_is_claimed(path: Path) -> None:
    def ask(ledger: Ledger) -> None:
        with turns(*all_at_once([0, 1]), ledger, KEYS, CALL, never) as some:
            assert [answer_all(turn) for turn in some] == [[0, 1]]

    with closing(Ledger.open()) as ledger:
        ask(ledger)
        names = ledger.connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("answers",)]
    with closing(Ledger.open(path)) as ledger:
        ledger.connection.execute("PRAGMA query_only = ON")
        with pytest.warns(match="2 answers are not in the ledger"):
            ask(ledger)


def test_a_file_of_the_first_version_takes_claims_and_works_with_it(path: Path) -> None:
    write_earlier(path, {KEYS.whole[0]: "old"})
    with (
        opened(path) as (ledger, _),
        turns(*all_at_once([0, 1, 2]), ledger, KEYS, CALL, never) as some,
    ):
        assert [(turn.known[0].text, answer_all(turn)) for turn in some] == [("old", [1, 2])]
    with closing(sqlite3.connect(path)) as file, file:  # as the first version does
        read = file.execute("SELECT text, prompt_tokens FROM answers").fetchall()
        assert sorted(read) == [("old", 5), ("question 1", 0), ("question 2", 0)]
        file.execute("INSERT OR REPLACE INTO answers VALUES (?, 'x', 1, 1)", (KEYS.whole[3],))
    with opened(path) as (ledger, _):
        assert ledger.find(KEYS)[3].text == "x"


class Watched:
    """A backend that sees which claims there are while it answers."""

    name = "watched"

    def __init__(self, path: Path) -> None:
        self.path, self.claims = path, 0

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        with closing(sqlite3.connect(self.path)) as file:
            tables = file.execute("SELECT name FROM sqlite_master WHERE name = 'claims'")
            if tables.fetchall():
                self.claims = file.execute("SELECT count(*) FROM claims").fetchone()[0]
        for index, _ in enumerate(prompts):
            yield index, YES

    def close(self) -> None:
        pass


QUERY = "SELECT LLM('up', id) AS up FROM (VALUES (1), (2), (3)) t(id)"


def test_only_what_can_be_stored_is_claimed(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 3),
        ({"temperature": 1.0}, 0),
        ({"temperature": 1.0, "seed": 1}, 3),
    ]
    for number, (sampling, claims) in enumerate(cases):
        path = tmp_path / f"{number}.db"
        backend = Watched(path)
        with connect(backend, ledger=path) as con:
            con.sql(QUERY, **sampling)
        assert backend.claims == claims


def test_answers_of_another_connection_count_as_known(path: Path) -> None:
    began, goes_on = Barrier(2), Barrier(2)

    class Slow(Watched):
        def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
            began.wait(60)
            goes_on.wait(60)
            yield from super().answer(prompts, sampling)

    def first() -> None:
        with connect(Slow(path), ledger=path) as con:
            con.sql(QUERY)

    told: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        threads.submit(first)
        began.wait(60)
        threads.submit(goes_on.wait)
        with connect(Watched(path), ledger=path) as con:
            result = con.sql(QUERY, progress=lambda name, done, total: told.append(done))
    assert (result.report.calls, result.report.ledger_hits) == (0, 3)
    assert told[-1] == 3
