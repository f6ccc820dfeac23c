"""What a task does with its partition: each input asked once, whatever became of other attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from relquery.backends.base import Backend
from relquery.config import QueryConfig
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.spark import asks as worker
from relquery.spark.asks import COUNTS, FINISH, KEY, KNOWN, LINES, TROUBLE, Asks, Place
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


FIRST = Place(3, 0, careful=False)


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


@pytest.mark.parametrize("careful", [False, True])
def test_what_an_attempt_has_got_before_it_died_is_not_asked_again(
    asks: Asks, monkeypatch: pytest.MonkeyPatch, careful: bool
) -> None:
    def die(row: int) -> None:
        if len(first.asked) == 25:
            raise ConnectionError("the executor is gone")

    first, second = Counting(die), Counting()
    with pytest.raises(ConnectionError):
        _ask(asks, first, monkeypatch, Place(3, 0, careful))
    found = _ask(asks, second, monkeypatch, Place(3, 1, careful))
    _check(found)
    answered = {row for row in first.asked if row % 10 != 7}
    assert answered.isdisjoint(second.asked)
    # The lost attempt has asked for the same stage.
    assert not any(found.column(KNOWN).to_pylist())
    assert min(found.column(COUNTS[0]).to_pylist()) == 1
    other = Counting()
    _ask(asks, other, monkeypatch, Place(4, 0, careful))  # of other inputs, as far as it can know
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


def test_attempts_beside_each_other_ask_next_to_nothing_twice(
    asks: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Counting()

    def run_the_other(row: int) -> None:
        if len(outer.asked) == 5:
            _check(_ask(asks, inner, monkeypatch, Place(3, 1, careful=True)))

    outer = Counting(run_the_other)
    _check(_ask(asks, outer, monkeypatch, Place(3, 0, careful=True)))
    # The slice that the slower one had begun, and what has no answer that is kept.
    both = [row for row in outer.asked if row in inner.asked and row % 10 != 7]
    assert len(both) <= worker._SLICE


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
