"""Progress in a terminal and a notebook: a line while a long run goes on, and nothing after it."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from rich.console import Console

from relquery.backends.base import Backend
from relquery.connection import connect
from relquery.errors import ConfigError
from relquery.progress import terminal
from relquery.progress import watch as notebook
from relquery.progress.stages import RunProgress, Stage
from relquery.progress.terminal import DELAY, Drawer
from relquery.progress.watch import (
    EVERY,
    Checked,
    display_here,
    is_terminal,
    shown,
    watching,
)
from relquery.prompt import Answer, Finish, Prompt, Sampling

PATIENCE = 15.0  # seconds after which a test fails
QUERY = "SELECT LLM('up', i) FROM range(4) t(i)"


@dataclass
class Screen:
    """A pseudo terminal: what is written to `stream` comes to `text`."""

    stream: Any
    monkeypatch: pytest.MonkeyPatch
    text: str = ""
    came: threading.Condition = field(default_factory=threading.Condition)

    def attach(self) -> None:
        """Make it standard error. In a fixture, pytest would replace it again."""
        self.monkeypatch.setattr(sys, "stderr", self.stream)

    def read(self, end: int) -> None:
        while True:
            try:
                new = os.read(end, 1 << 16)
            except OSError:
                return
            with self.came:
                self.text += new.decode()
                self.came.notify_all()

    def wait_for(self, wanted: str) -> None:
        with self.came:
            assert self.came.wait_for(lambda: wanted in self.text, PATIENCE), self.text

    @property
    def left(self) -> list[str]:
        self.stream.write("\0")
        self.stream.flush()
        self.wait_for("\0")  # all that was written before has come
        lines, row, column = [""], 0, 0
        text = self.text.replace("\0", "")
        for code, end, char in re.findall(r"\x1b\[([?\d;]*)([A-Za-z])|([\s\S])", text):
            if end == "A":
                row = max(0, row - int(code or 1))
            elif end == "K":
                lines[row] = ""
            elif char == "\r":
                column = 0
            elif char == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif char:
                lines[row] = lines[row].ljust(column)[:column] + char + lines[row][column + 1 :]
                column += 1
        return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal; `attach` makes standard error one."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = os.fdopen(theirs, "w", buffering=1)
    found = Screen(stream, monkeypatch)
    reader = threading.Thread(target=found.read, args=(ours,), daemon=True)
    reader.start()
    yield found
    stream.close()
    reader.join(PATIENCE)
    os.close(ours)


class Waiting(Backend):
    """Gives an answer, and calls a function before the next."""

    name = "gpt-4o-mini"

    def __init__(self, between: Callable[[int], None]) -> None:
        self.between = between

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for at in range(len(prompts)):
            if at:
                self.between(at)
            yield at, Answer("X", Finish.STOP, prompt_tokens=1000, cached_tokens=500)

    def close(self) -> None:
        pass


def jumping() -> Callable[[], float]:
    """A clock that goes on by a second whenever it is read."""
    seconds = count()
    return lambda: float(next(seconds))


def test_a_long_query_shows_what_it_counts_and_leaves_nothing(screen: Screen) -> None:
    screen.attach()

    def until_seen(at: int) -> None:
        screen.wait_for(f"{at} of 4, {at} call")
        screen.wait_for("tokens/s, 50% cached, $0.000")
        screen.wait_for("left")

    with connect(Waiting(until_seen), clock=jumping()) as con:
        assert con.sql(QUERY).fetchall() == [("X",)] * 4
    assert "projection 1" in screen.text
    assert screen.left == []


@pytest.mark.parametrize("progress", [False, lambda *_: None])
def test_false_or_a_function_of_the_user_shows_nothing(progress: Any, screen: Screen) -> None:
    screen.attach()
    for of_connection, of_query in (({"progress": progress}, {}), ({}, {"progress": progress})):
        with connect(Waiting(lambda at: None), clock=jumping(), **of_connection) as con:
            con.sql(QUERY, **of_query)
    assert screen.left == []
    assert screen.text.strip("\0") == ""


def test_true_for_a_query_is_stronger_than_false_for_the_connection(screen: Screen) -> None:
    screen.attach()
    waiting = Waiting(lambda at: screen.wait_for("projection 1"))
    with connect(waiting, clock=jumping(), progress=False) as con:
        con.sql(QUERY, progress=True)


def test_without_a_terminal_there_is_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    for progress in (None, True):
        with connect(Waiting(lambda at: None), clock=jumping()) as con:
            con.sql(QUERY, progress=progress)
    assert written.getvalue() == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_ends_a_query_early_ends_its_line(error: type[BaseException], screen: Screen) -> None:
    screen.attach()

    def fail(at: int) -> None:
        screen.wait_for("projection 1")
        raise error

    stderr = sys.stderr
    with connect(Waiting(fail), clock=jumping()) as con, pytest.raises(error):
        con.sql(QUERY)
    assert sys.stderr is stderr
    assert screen.left == []
    assert not [one for one in threading.enumerate() if one.name == "relquery progress"]


def test_logs_and_warnings_stand_above_the_line(screen: Screen) -> None:
    screen.attach()
    handler = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger("tests.progress")
    logger.addHandler(handler)

    def say(at: int) -> None:
        screen.wait_for(f"{at} of 4")
        if at == 1:
            logger.warning("a log")
            print("a text", file=sys.stderr)
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = _printed
                warnings.warn("a warning", UserWarning, stacklevel=1)

    with connect(Waiting(say), clock=jumping()) as con:
        con.sql(QUERY)
    logger.removeHandler(handler)
    assert handler.stream is screen.stream
    assert screen.left == ["a log", "a text", "a warning"]


def _printed(message: Warning | str, *_: object, **__: object) -> None:
    print(message, file=sys.stderr)


def test_of_two_runs_at_a_time_one_is_shown(screen: Screen) -> None:
    screen.attach()
    inner = connect(Waiting(lambda at: None), clock=jumping())

    def nested(at: int) -> None:
        screen.wait_for(f"{at} of 4")
        inner.sql("SELECT LLM('inside', i) FROM range(9) t(i)")

    with inner, connect(Waiting(nested), clock=jumping()) as con:
        con.sql(QUERY)
    assert "of 9" not in screen.text
    assert screen.left == []


def drawer(clock: Callable[[], float]) -> tuple[Drawer, RunProgress, io.StringIO]:
    tally, stream = RunProgress(clock), io.StringIO()
    return Drawer(tally, "", stream), tally, stream


def test_nothing_is_drawn_before_half_a_second_or_by_the_run_itself() -> None:
    now = 0.0
    found, tally, stream = drawer(lambda: now)
    tally.advance("filter 1", 1, 2)
    now = DELAY * 0.99
    found.draw()
    now = 9.0
    for done in range(1000):
        tally.advance("filter 1", done, 1000)
        tally.heard(Answer("X", Finish.STOP))
    assert stream.getvalue() == ""
    assert terminal.EVERY >= 0.1
    now = DELAY
    found.draw()
    assert "filter 1" in stream.getvalue()
    found.close()


def test_figures_are_those_of_the_stage() -> None:
    stage = Stage(
        began=10.0, known=100, done=400, total=1200, calls=300, prompt=9000, cached=6000,
        output=900, errors=1, usd=0.0123,
    )  # fmt: skip
    assert stage.figures(40.0) == (
        "400 of 1,200, 300 calls, 330 tokens/s, 67% cached, 1 error, $0.0123, 1:20 left"
    )
    assert Stage(0.0, 0, 0, 8000).figures(5.0) == "0 of 8,000"
    assert Stage(0.0, 0, 1, 8000).figures(1.0) == "1 of 8,000, 2:13:19 left"


def test_what_is_waited_for_is_told_of_the_stage_that_waits() -> None:
    tally = RunProgress(lambda: 10.0, waiting=lambda: 75.0)
    tally.advance("filter 1", 3, 3)
    tally.advance("filter 2", 0, 7)
    assert tally.figures() == {
        "filter 1": "3 of 3",
        "filter 2": "0 of 7, waits 1:15 for the provider's limits",
    }
    assert Stage(0.0, 0, 0, 7).figures(1.0, waiting=0.9) == "0 of 7"
    assert Stage(0.0, 0, 7, 7).figures(1.0, waiting=9.0) == "7 of 7"


def test_answers_count_for_the_stage_that_was_told_of_last() -> None:
    tally = RunProgress(lambda: 0.0)
    tally.heard(Answer("early", Finish.STOP))
    tally.advance("filter 1", 0, 1)
    tally.heard(Answer("X", Finish.STOP, prompt_tokens=5, cached_tokens=2, output_tokens=1))
    tally.advance("filter 2", 0, 1)
    tally.heard(Answer(None, Finish.ERROR, "broken"), 0.5)
    first, second = tally.stages.values()
    assert (first.calls, first.prompt, first.cached, first.output, first.errors) == (1, 5, 2, 1, 0)
    assert (second.calls, second.errors, second.usd) == (1, 1, 0.5)


def test_a_check_is_called_before_the_progress_that_it_goes_with() -> None:
    said: list[object] = []
    progress = Checked(lambda *_: said.append("check"), lambda *each: said.append(each))
    with watching(progress) as watch:
        assert watch is not None
        watch("filter 1", 1, 2)
    assert said == ["check", ("filter 1", 1, 2)]


@pytest.mark.parametrize("progress", [3, "auto", []])
def test_other_values_are_refused(progress: Any) -> None:
    with pytest.raises(ConfigError, match="must be True, False, None or a function"):
        connect(Waiting(lambda at: None), progress=progress)
    with connect(Waiting(lambda at: None)) as con, pytest.raises(ConfigError, match="function"):
        con.sql("SELECT 1", progress=progress)


def test_a_dumb_terminal_shows_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    screen.attach()
    assert is_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal()
    assert Console(file=sys.stderr).is_dumb_terminal


class Handle:
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def update(self, bars: Any) -> None:
        self.seen.append(bars._repr_html_())


def test_progress_is_shown_now_and_then_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    now = 0.0

    def display(bars: Any) -> Handle:
        seen.append(bars._repr_html_())
        return Handle(seen)

    monkeypatch.setattr(notebook, "display_here", lambda: display)
    with watching(None, lambda: now) as watch:
        assert watch is not None
        for done, seconds in enumerate((0.0, DELAY, DELAY + EVERY / 2, DELAY + 2 * EVERY), 1):
            now = seconds
            watch("filter <1>", done, 5)
    assert "filter &lt;1&gt;: 2 of 5" in seen[0]
    assert "filter &lt;1&gt;: 4 of 5" in seen[1]
    assert seen[2:] == [""]


def test_a_quick_query_shows_nothing() -> None:
    tally = RunProgress(lambda: 0.0)
    with shown(tally, lambda bars: pytest.fail("shown")) as tell:
        tally.advance("filter 1", 1, 2)
        tell()


def test_outside_a_notebook_there_is_nothing_to_show_on() -> None:
    assert display_here() is None
