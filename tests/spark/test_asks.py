"""What a task does with its partition: each input asked once, whatever became of other attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import sleep

import pyarrow as pa
import pytest

from relquery.backends.base import Backend
from relquery.config import QueryConfig
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.spark import asks as worker
from relquery.spark.asks import COUNTS, FINISH, KEY, KNOWN, LINES, TROUBLE, Asks, Place
from relquery.spark.claims import AttemptClaims, remove_claims
from relquery.sql import names as ours
from relquery.sql.binder.call import Task


class Counting(Backend):
    """Answers with the number of the prompt's row. asked: the rows. before: called for each."""

    name = "counting"

    def __init__(self, before: Callable[[int], None] = lambda row: None) -> None:
        self.asked: list[int] = []
        self.before = before

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            text = "".join(str(span.content) for span in prompt)
            row = int(text.split("row ")[1].split('"')[0])
            self.before(row)
            self.asked.append(row)
            if row % 10 == 7:
                yield index, Answer(None, Finish.ERROR, "no sevens")
            else:
                yield index, Answer(f"answer {row}", Finish.STOP, prompt_tokens=row)


FIRST = Place(3, 0)


@pytest.fixture
def asks(tmp_path: Path) -> Asks:
    return Asks(
        "filter 1",
        Task(("Which row?",)),
        ("text", "kind"),
        ("string", "json"),
        (),
        QueryConfig(),
        "counting",
        (),
        str(tmp_path),
        "run",
        concurrency=1,
    )


def _ask(
    asks: Asks,
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    place: Place = FIRST,
    rows: int = 60,
) -> pa.Table:
    monkeypatch.setattr(worker, "_backend", lambda model, options: backend)
    table = pa.table(
        {
            KEY: [f"key {row}".encode() for row in range(rows)],
            ours.field(0): [f"row {row}" for row in range(rows)],
            ours.field(1): [str(row % 4) for row in range(rows)],
        }
    )
    return pa.Table.from_batches(asks.over(iter(table.to_batches(7)), place), asks.schema)


def _check(found: pa.Table, rows: int = 60) -> None:
    by_key = {each[KEY].decode(): each for each in found.to_pylist()}
    assert len(by_key) == found.num_rows == rows
    for row in range(rows):
        each = by_key[f"key {row}"]
        if row % 10 == 7:
            assert each[ours.VALUE] is None
            assert each[TROUBLE] == "no sevens"
            assert each[FINISH] == "error"
        else:
            assert each[ours.VALUE] == f"answer {row}"
            assert each[TROUBLE] is None
            assert each[COUNTS[1]] == row


def test_every_input_has_its_answer(asks: Asks, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Counting()
    _check(_ask(asks, backend, monkeypatch))
    assert sorted(backend.asked) == list(range(60))
    kinds = [row % 4 for row in backend.asked]
    assert sum(a != b for a, b in pairwise(kinds)) == 3


def test_no_input_is_no_answer(asks: Asks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ask(asks, Counting(), monkeypatch, rows=0).num_rows == 0


@pytest.mark.parametrize("is_second", [False, True])
def test_what_an_attempt_has_got_before_it_died_is_not_asked_again(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, is_second: bool
) -> None:
    def die(row: int) -> None:
        if len(first.asked) == 25:
            raise ConnectionError("the executor is gone")

    first, second = Counting(die), Counting()
    with pytest.raises(ConnectionError):
        _ask(asks, first, monkeypatch, Place(3, 0, is_second))
    found = _ask(asks, second, monkeypatch, Place(3, 1, is_second))
    _check(found)
    answered = {row for row in first.asked if row % 10 != 7}
    assert answered.isdisjoint(second.asked)
    # The lost attempt has asked for the same stage.
    assert not any(found.column(KNOWN).to_pylist())
    assert min(found.column(COUNTS[0]).to_pylist()) == 1
    other = Counting()
    _ask(asks, other, monkeypatch, Place(4, 0, is_second))  # of other inputs, as far as it can know
    assert len(other.asked) == 60


def test_what_the_ledger_had_before_is_not_asked(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _ask(asks, Counting(), monkeypatch, rows=20)
    (file,) = tmp_path.glob("*.answers")
    lines = file.read_text().splitlines()
    later, backend = replace(asks, run="later"), Counting()
    monkeypatch.setattr(worker, "_backend", lambda model, options: backend)
    table = pa.table(
        {
            KEY: [f"key {row}".encode() for row in range(60)],
            ours.field(0): [f"row {row}" for row in range(60)],
            ours.field(1): [str(row % 4) for row in range(60)],
            LINES: [[*lines, "[half of"] if row == 0 else None for row in range(60)],
        }
    )
    found = pa.Table.from_batches(later.over(iter(table.to_batches()), FIRST), later.schema)
    _check(found)
    assert len(lines) == 18
    assert len(backend.asked) == 60 - 18
    assert sum(found.column(KNOWN).to_pylist()) == 18


@pytest.mark.parametrize("rows", [60, 4])
def test_attempts_that_run_at_once_ask_each_input_once(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(worker, "_LOOK", 0.005)
    backend = Counting(lambda row: sleep(0.002))
    with ThreadPoolExecutor(3) as pool:
        attempts = [
            pool.submit(_ask, asks, backend, monkeypatch, Place(3, at, has_rivals=True), rows)
            for at in range(3)
        ]
        for one in attempts:
            _check(one.result(), rows)
    kept = [row for row in backend.asked if row % 10 != 7]  # what failed is asked by each
    assert len(kept) == len(set(kept))


@pytest.mark.parametrize("look", ["take", "free"])
def test_an_attempt_that_ends_while_another_looks_at_its_claims_is_not_asked_again(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    began, may_end = Event(), Event()

    def wait(row: int) -> None:
        began.set()
        may_end.wait(10)

    first, second = Counting(wait), Counting()
    real = getattr(AttemptClaims, look)
    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(_ask, asks, first, monkeypatch, Place(3, 0, has_rivals=True), 6)
        assert began.wait(10)

        def see_it_end(claims: AttemptClaims, keys: Iterable[bytes]) -> set[bytes]:
            if claims.attempt == 1:
                may_end.set()
                one.result(10)
            found: set[bytes] = real(claims, keys)
            return found

        monkeypatch.setattr(AttemptClaims, look, see_it_end)
        _check(_ask(asks, second, monkeypatch, Place(3, 1, has_rivals=True), 6), 6)
        _check(one.result(10), 6)
    asked = first.asked + second.asked
    assert len(asked) == len(set(asked)) == 6


def test_what_a_lost_attempt_has_claimed_is_asked_once_it_gives_no_answers(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker, "_LOOK", 0.005)
    monkeypatch.setattr(worker, "_PATIENCE", 0.2)

    def leave(row: int) -> None:
        if len(lost.asked) == 10:
            raise ConnectionError("the executor is gone")

    lost, second = Counting(leave), Counting()
    monkeypatch.setattr(AttemptClaims, "close", lambda self: None)  # as one that is killed
    with pytest.raises(ConnectionError):
        _ask(asks, lost, monkeypatch, Place(3, 0, has_rivals=True))
    _check(_ask(asks, second, monkeypatch, Place(3, 1, has_rivals=True)))
    assert not {row for row in lost.asked if row % 10 != 7} & set(second.asked)
    remove_claims(tmp_path, "run")
    assert not [*tmp_path.glob("*.claims")]


def test_a_claim_is_of_the_first_to_want_it_and_of_the_first_attempt_where_two_do(
    tmp_path: Path,
) -> None:
    one, two = AttemptClaims(tmp_path, "run-1", 1), AttemptClaims(tmp_path, "run-1", 2)
    keys = [bytes([at]) for at in range(4)]
    assert two.take(keys[:2]) == {*keys[:2]}
    assert one.take(keys[:3]) == {keys[2]}
    assert one.free(keys) == {*keys[2:]}
    assert two.take(keys[2:]) == {keys[3]}
    assert not two.free(keys[2:3])
    two.give_back(keys[0])
    assert one.free(keys[:2]) == {keys[0]}
    two.close()
    assert one.free(keys) == {*keys}


def test_an_error_that_should_raise_stops_the_rest(
    asks: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Counting()
    strict = replace(asks, config=QueryConfig(on_error="raise"))
    found = _ask(strict, backend, monkeypatch)
    assert [row for row in backend.asked if row % 10 == 7] == [backend.asked[-1]]
    assert found.num_rows == len(backend.asked)
    assert sum(trouble is not None for trouble in found.column(TROUBLE).to_pylist()) == 1


class Echo(Backend):
    """Answers with its prompt. asked: the prompts."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            self.asked.append("".join(str(span.content) for span in prompt))
            yield index, Answer(self.asked[-1].rpartition("by ")[2], Finish.STOP)


def test_personal_data_is_not_sent_and_is_in_the_answers(
    asks: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, task = Echo(), replace(asks.task, redact=("EMAIL",), form="text")
    monkeypatch.setattr(worker, "_backend", lambda model, options: backend)
    mails = ["ann@example.org", "bob@example.org"]
    table = pa.table({KEY: [b"1", b"2"], ours.field(0): [f"by {mail}" for mail in mails]})
    asks = replace(asks, task=task, names=("text",), forms=("string",))
    found = pa.Table.from_batches(asks.over(iter(table.to_batches()), FIRST), asks.schema)
    assert found.column(ours.VALUE).to_pylist() == mails
    assert [asked.rpartition("by ")[2] for asked in backend.asked] == ["[EMAIL_1]"]
