"""The shell as a person uses it, with keys in place of a terminal; and what it remembers."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from relquery.cli.interrupt import deferred, interruptible
from relquery.cli.shell.session import Screen, Session
from relquery.cli.shell.start import (
    completer,
    converse,
    line_reader,
    open_history,
    prompt_reader,
    run_entries,
)
from relquery.cli.sql.options import ConnectionOptions
from relquery.cli.sql.output import Format
from tests.cli.shell.conftest import Say
from tests.sql.fakes import FakeBackend, Fields

CTRL_C, CTRL_D = "\x03", "\x04"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


@pytest.fixture
def typed(
    keys: PipeInput, session: Session, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """What the shell writes when keys are pressed; Ctrl-D follows them."""

    def press(text: str) -> tuple[str, str]:
        session.screen.form = Format.CSV
        reader = prompt_reader(InMemoryHistory(), completer(session))
        session.ask = reader.is_yes
        keys.send_text(text + CTRL_D)
        converse(session, reader)
        return capsys.readouterr()

    return press


def test_statements_of_several_lines_run_at_their_ends_and_ctrl_d_leaves(typed: Say) -> None:
    for keys, shown in (
        ("SELECT title\rFROM films\rWHERE stars > 3;\r", '"title"\n"Alien"\n'),
        (f"{PASTE}SELECT 1 AS a;\n.mode json\nSELECT\n2 AS b;\n{PASTED}\r", '"a"\n1\n[{"b": 2}]\n'),
        (f"SELECT 'half{CTRL_C}SELECT 2 AS b;\r", '"b"\n2\n'),
    ):
        out, err = typed(keys)
        assert (out, err.replace("mode: json\n", "")) == (shown, "")


def test_errors_are_shown_with_a_caret_and_the_shell_goes_on(typed: Say) -> None:
    out, err = typed("SELECT titel FROM films;\rSELECT (1;\rFROM film;\rSELECT 3 AS n;\r")
    assert "Did you mean 'films'?" in err
    assert "In the shell: .register NAME=FILE." in err
    assert "Did you mean 'title'?" in err
    assert "\n  SELECT (1;\n           ^" in err
    assert out == '"n"\n3\n'


def test_a_no_sends_nothing_and_a_yes_does(typed: Say, backend: FakeBackend) -> None:
    typed(".explain on\rSELECT LLM('up', title) FROM films;\rn\r")
    assert backend.asked == []
    typed(f"SELECT LLM('up', title) FROM films;\r{CTRL_C}")
    assert backend.asked == []
    typed("SELECT LLM('up', title) FROM films;\ry\r")
    assert len(backend.asked) == 2


def test_ctrl_c_stops_and_keeps_answers(say: Say, session: Session, backend: FakeBackend) -> None:
    def press_after_three(query: str, fields: Fields) -> str:
        if len(backend.asked) == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # an impatient person
        return "Yes"

    backend.function = press_after_three
    query = "SELECT count(LLM('up', range)) AS n FROM range(9);"
    _, err = say(f"{query} SELECT 2;")
    assert "Interrupted. 3 new answers are kept" in err
    assert "1 more entry was not run." in err
    out, err = say(query)
    assert "9" in out
    assert "6 LLM calls" in err


def test_ctrl_c_stops_what_duckdb_computes(say: Say) -> None:
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    _, err = say(
        "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range = -b.range;"
    )
    assert err == "Interrupted.\n"
    assert "1" in say("SELECT 1 AS n;")[0]


@pytest.mark.parametrize(("presses", "is_done"), [(1, True), (2, False)])
def test_loading_a_model_ends_at_a_second_ctrl_c_alone(presses: int, is_done: bool) -> None:
    heard: list[str] = []

    def load() -> None:
        with interruptible(), deferred(lambda: heard.append("heard")):
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
            heard.append("done")

    with pytest.raises(KeyboardInterrupt):
        load()
    assert heard == ["heard", "done"][: 1 + is_done]


def test_our_fault_ends_nothing(
    say: Say, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*given: object) -> None:
        raise ZeroDivisionError("oh [red]")

    monkeypatch.setattr("relquery.cli.shell.start.run_statement", breaks)
    _, err = say("SELECT 1;")
    assert "Error in relquery itself, please report it: oh [red]" in err
    assert "ZeroDivisionError" in err
    assert not session.is_over


def test_what_cells_hold_does_nothing_to_the_terminal(say: Say) -> None:
    out, _ = say("SELECT chr(27) || '[31m[red]x[/red]' AS \"a\x1b[0m\";")
    assert "\x1b" not in out
    assert "\\x1b[31m[red]x[/red]" in out
    _, err = say("SELECT error(chr(27) || '[31m[red]');")
    assert "\x1b" not in err
    assert "[red]" in err


def test_columns_in_a_narrow_terminal_are_lines(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out, _ = say("SELECT " + ", ".join(f"'value {at}' AS c{at}" for at in range(9)) + ";")
    assert [line.rstrip() for line in out.splitlines()[:3]] == [
        "row 1",
        "c0  value 0",
        "c1  value 1",
    ]
    _, err = say("SELECT LLM('up', title) AS up FROM films;")
    assert all(len(line) <= 40 for line in (out + err).splitlines())
    assert "prompt" in err


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["SELECT 'a", "b' AS n", ";", ".explain on", "SELECT LLM('up', 1);", "yes"])
    prompts = []

    def line(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    reader = line_reader(line)
    session.ask = reader.is_yes
    converse(session, reader)
    assert "a\\nb" in capsys.readouterr()[0]
    assert prompts[:4] == ["relquery> ", "     ...> ", "     ...> ", "relquery> "]
    assert "Send 1 call? [y/N] " in prompts


def test_options_are_those_of_the_command(setup: ConnectionOptions, loaded: list[str]) -> None:
    given = replace(setup, order="original", guard=0.5, max_tokens=3, model="m")
    session = Session.open(given, Screen(), lambda question: False)
    run_entries(session, "SELECT LLM('up', title) FROM films;")
    assert session.last is not None
    assert session.last.report.stages[0].order.startswith("original")
    assert loaded == ["m"]
    session.close()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the history."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "relquery" / "history"


def test_entries_of_several_lines_are_there_in_the_next_session(kept: Path) -> None:
    first = open_history()
    first.append_string("SELECT 1;")
    first.append_string("SELECT\n'ü';")
    assert list(open_history().load_history_strings()) == ["SELECT\n'ü';", "SELECT 1;"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_a_file_is_closed_to_others_and_odd_bytes_do_no_harm(kept: Path) -> None:
    kept.parent.mkdir()
    kept.touch(0o644)
    open_history()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_bytes(b"\n# then\n+SELECT '\xff\xfe';\n")
    history = open_history()
    assert list(history.load_history_strings()) == ["SELECT '\ufffd\ufffd';"]
    history.append_string("SELECT '\udcff';")  # half a character, as a terminal may send it
    assert len(list(open_history().load_history_strings())) == 2


def test_a_session_needs_no_file(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.mkdir(parents=True)
    assert isinstance(open_history(), InMemoryHistory)
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where no user has a name
    assert isinstance(open_history(), InMemoryHistory)
    assert capsys.readouterr().err.count("The history is not kept") == 2
