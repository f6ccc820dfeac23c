"""Answers are in the ledger's file soon after they came, whatever then happens to the process."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.standin.server import until
from relquery.backends.base import Answers
from relquery.connection import connect
from relquery.errors import LedgerWarning
from relquery.ledger import Ledger
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.result import Result
from tests.ledger.stored import stored

ROWS = {"id": list(range(40))}
QUERY = "SELECT id, LLM('up', id) AS up FROM t ORDER BY id"


@dataclass
class Stepwise:
    """Answers so many prompts, then does what it is told, then answers the others."""

    first: int
    then: Callable[[], object]
    name: str = "stepwise"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        for index in range(len(prompts)):
            if index == self.first:
                self.then()
            yield index, Answer(f"answer {index}", Finish.STOP)

    def close(self) -> None:
        pass


def ask(backend: Stepwise, path: Path, **options: Any) -> Result:
    with connect(backend, ledger=path, **options) as con:
        con.register("t", ROWS)
        return con.sql(QUERY)


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_answer_is_on_file_while_the_next_is_waited_for(path: Path, in_thread: bool) -> None:
    backend = Stepwise(3, lambda: until(lambda: stored(path) == 3))
    if in_thread:  # in which no handler of signals can be set
        thread = Thread(target=ask, args=(backend, path))
        thread.start()
        thread.join()
    else:
        ask(backend, path)
    assert stored(path) == 40


# A Python program whose backend sends a signal to it, just after it has given some answers.
PROGRAM = """
import os, signal, sys, threading
from relquery.connection import connect
from relquery.prompt import Answer, Finish

class Backend:
    name = "stepwise"
    def answer(self, prompts, sampling):
        for index in range(len(prompts)):
            if index == 30:
                {then}
            yield index, Answer(f"answer {{index}}", Finish.STOP)
    def close(self):
        pass

with connect(Backend(), ledger=sys.argv[1]) as con:
    con.register("t", {{"id": list(range(40))}})
    con.sql("SELECT LLM('up', id) AS up FROM t")
print("done")
"""


def run(path: Path, then: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(then=then), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.long)])
def test_a_program_that_is_told_to_end_has_stored_all_answers(path: Path, name: str) -> None:
    done = run(path, f"os.kill(os.getpid(), signal.{name})")
    assert done.returncode == -signal.Signals[name]
    assert (done.stdout, done.stderr) == ("", "")
    assert stored(path) == 30


def test_a_handler_of_the_programs_own_is_left_to_do_as_it_will(path: Path) -> None:
    seen: list[object] = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("told"))
    try:
        backend = Stepwise(3, lambda: signal.raise_signal(signal.SIGTERM))
        assert len(ask(backend, path)) == 40
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["told"]


def test_the_handlers_of_signals_are_as_before_when_a_query_ends(path: Path) -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]

    before, during = handlers(), list[object]()
    ask(Stepwise(3, lambda: during.extend(handlers())), path)
    assert handlers() == before == [signal.SIG_DFL] * 2
    assert during != before


@contextmanager
def storing(act: Callable[[], None]) -> Iterator[None]:
    """`act` goes before whatever is stored."""
    put = Ledger.put

    def act_and_put(self: Ledger, answers: list[tuple[bytes, Answer]], **more: Any) -> None:
        act()
        put(self, answers, **more)

    with patch.object(Ledger, "put", act_and_put):
        yield


def test_a_slow_disk_holds_up_no_answer(path: Path) -> None:
    is_fast = Event()
    backend = Stepwise(39, is_fast.set)  # never set if storing were waited for
    with storing(lambda: until(is_fast.is_set)):
        ask(backend, path)
    assert stored(path) == 40


def test_what_could_not_be_stored_is_stored_when_the_disk_takes_it_again(path: Path) -> None:
    left = [3]

    def fail_at_first() -> None:
        if left[0]:
            left[0] -= 1
            raise sqlite3.OperationalError("database or disk is full")

    with storing(fail_at_first):
        ask(Stepwise(3, lambda: until(lambda: stored(path) == 3)), path)
    assert stored(path) == 40


def test_a_disk_that_stays_full_costs_no_result_and_is_told(path: Path) -> None:
    def fail() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    said = "40 answers are not in the ledger .* is full"
    with storing(fail), pytest.warns(LedgerWarning, match=said):
        result = ask(Stepwise(99, print), path, order="original")
    assert result.fetchall()[7] == (7, "answer 7")
    assert stored(path) == 0
