"""`relquery resume` runs what was stopped once more, and asks nothing that is known."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted, Silence, question, serving, until
from benchmarks.standin.wires.openai_chat import completion
from relquery.cli.sql import resume as noted
from relquery.cli.sql.resume import noted_text
from relquery.ledger import Ledger
from relquery.ledger.runs import Run as Noted
from relquery.ledger.runs import RunState, begin_run, end_run, runs_of
from tests.cli.conftest import Run
from tests.ledger.stored import stored

QUERY = "SELECT a, LLM('up', a) AS up FROM t ORDER BY a"
SECRET = "sk-very-secret-123"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """A server that fails the row `y` until a test lets it answer."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    def reply(body: Json) -> Reply:
        return Refused(400, "not now") if '"y"' in question(body) else completion("yes")

    with serving(reply) as chat:
        monkeypatch.setenv("OPENAI_BASE_URL", chat.url)
        yield chat


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "t.csv").write_text("a\nx\ny\nz\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(relquery: Run, *more: str, code: int = 3, stdin: str = "") -> tuple[str, str]:
    options = ("-t", "t.csv", "-m", "openai:m", "--ledger", "run.db", "--order", "original")
    return relquery("sql", "-" if stdin else QUERY, *options, *more, code=code, stdin=stdin)


def runs(path: str = "run.db") -> list[Noted]:
    with closing(Ledger.open(path)) as ledger:
        return runs_of(ledger.connection)


def test_a_run_with_failed_rows_is_resumed_and_asks_only_these(
    relquery: Run, chat: Scripted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(relquery, "--max-tokens", "7", "--no-history", "-f", "csv")
    chat.answer, asked = lambda body: completion("late"), len(chat.asked)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    out, err = relquery("resume", "../run.db")
    assert "Resuming run 1, which was incomplete." in err
    assert out.splitlines() == ['"a","up"', '"x","yes"', '"y","late"', '"z","yes"']
    assert len(chat.asked) == asked + 1
    assert chat.asked[-1]["max_tokens"] == 7
    assert [run.state for run in runs("../run.db")] == [RunState.CONTINUED, RunState.COMPLETE]
    _, err = relquery("resume", "../run.db")
    assert "Nothing to resume: all runs in ../run.db are complete." in err


def test_added_options_win_or_are_refused(relquery: Run, chat: Scripted, folder: Path) -> None:
    start(relquery, "-f", "csv")
    for option in (("-m", "openai:n"), ("--seed", "3"), ("SELECT 1",), ("--dtype", "int8")):
        _, err = relquery("resume", "run.db", *option, code=1)
        assert "cannot be given to `relquery resume`" in err
    assert "--no-such" in relquery("resume", "run.db", "--no-such", "3", code=2)[1]
    assert len(runs()) == 1
    out, _ = relquery("resume", "run.db", "-f", "json", "--allow-errors")
    assert [row["up"] for row in json.loads(out)["rows"]] == ["yes", None, "yes"]
    assert runs()[1].options["form"] == ["json"]


def test_texts_are_compared_as_before_when_an_encoder_has_come_meanwhile(
    relquery: Run, chat: Scripted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted, "default_embedder", lambda: "tfidf")
    start(relquery)
    monkeypatch.setattr(noted, "default_embedder", lambda: "BAAI/bge-small-en-v1.5")
    relquery("resume", "run.db", code=3)
    assert [run.options["embedder"] for run in runs()] == [["tfidf"], ["tfidf"]]


def test_a_statement_from_stdin_is_resumed(relquery: Run, chat: Scripted, folder: Path) -> None:
    start(relquery, "-p", "n=2", stdin="SELECT LLM('up', a) FROM t WHERE a >= 'y' LIMIT $n")
    chat.answer = lambda body: completion("late")
    out, _ = relquery("resume", "run.db", "-f", "csv")
    assert sorted(out.splitlines()[1:]) == ['"late"', '"yes"']


def test_a_table_that_is_gone_or_changed(relquery: Run, chat: Scripted, folder: Path) -> None:
    start(relquery)
    table, asked = folder / "t.csv", len(chat.asked)
    content = table.read_text()
    table.unlink()
    _, err = relquery("resume", "run.db", code=1)
    assert f"Run 1 read {table}, which does not exist any more" in err
    assert len(chat.asked) == asked
    table.write_text(content.replace("y", "w"))
    out, err = relquery("resume", "run.db", "-f", "csv")
    assert f"Warning: {table} has changed since run 1" in err
    assert out.splitlines()[1:] == ['"w","yes"', '"x","yes"', '"z","yes"']
    assert len(chat.asked) == asked + 1


def test_a_run_is_noted_without_the_key(relquery: Run, chat: Scripted, folder: Path) -> None:
    start(relquery, "--explain", code=0)
    assert "has no runs" in relquery("resume", "run.db", code=1)[1]
    assert not chat.asked
    start(relquery)
    written = b"".join(file.read_bytes() for file in folder.glob("run.db*"))
    assert QUERY.encode() in written
    assert SECRET.encode() not in written


def test_a_query_with_an_error_is_stopped(relquery: Run, chat: Scripted, folder: Path) -> None:
    chat.answer = lambda body: Refused(401, "Incorrect API key provided")
    start(relquery, code=1)
    assert [run.state for run in runs()] == [RunState.STOPPED]
    chat.answer = lambda body: completion("now")
    assert relquery("resume", "run.db", "-f", "csv")[0].count("now") == 3


def test_a_killed_run_is_resumed(relquery: Run, chat: Scripted, folder: Path) -> None:
    goes_on = False

    def reply(body: Json) -> Reply | Silence:
        is_answered = goes_on or '"z"' not in question(body)
        return completion("yes") if is_answered else Silence.UNTIL_CLIENT_LEAVES

    chat.answer = reply
    command = [sys.executable, "-m", "relquery", "sql", QUERY, "-t", "t.csv", "-m", "openai:m"]
    with subprocess.Popen(
        [*command, "--ledger", "run.db", "--order", "original", "--prompt-form", "json"]
    ) as running:
        until(lambda: stored(folder / "run.db") == 2)
        _, err = relquery("resume", "run.db", code=1)
        assert f"Run 1 in run.db is still running (process {running.pid})" in err
        running.send_signal(signal.SIGKILL)
    assert runs()[0].state is RunState.KILLED
    goes_on, asked = True, len(chat.asked)
    out, err = relquery("resume", "run.db", "-f", "csv")
    assert "Resuming run 1, which was killed." in err
    assert out.count("yes") == 3
    assert len(chat.asked) == asked + 1


def test_answers_are_told_apart_by_run(tmp_path: Path) -> None:
    with closing(Ledger.open(tmp_path / "l.db")) as ledger:
        assert begin_run(ledger, "SELECT 1", {}, {}) == ledger.run == 1
        end_run(ledger, RunState.STOPPED)
        assert ledger.run is None
        assert begin_run(ledger, "SELECT 2", {}, {}) == 2
        assert begin_run(ledger, "SELECT 1", {"seed": ["3"]}, {}) == 3
        states = {run.number: run.state for run in runs_of(ledger.connection)}
        with suppress(ValueError):
            end_run(ledger, RunState.COMPLETE)
    assert states == {1: RunState.CONTINUED, 2: RunState.RUNNING, 3: RunState.RUNNING}


def test_addresses_are_noted_without_their_secrets() -> None:
    for address, kept in (
        ("https://me:pw@host/v1?api-key=abc&v=2", "https://host/v1?v=2"),
        ("https://host/v1?v=2&sig=abc", "https://host/v1?v=2&"),
        ("https://host/v1", "https://host/v1"),
    ):
        assert noted_text("base_url", address) == kept
