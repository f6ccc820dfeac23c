"""A command that is interrupted, told to end or killed has paid for no answer in vain."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted, Silence, until
from benchmarks.standin.wires.openai_chat import completion
from tests.backends.conftest import Serve
from tests.ledger.stored import stored

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "relquery"]
QUERY = "SELECT count(LLM('up', id)) AS n FROM range(60) t(id)"
ANSWERED = 20


class Server:
    """Answers so many prompts, then none until it is told to go on."""

    def __init__(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = False
        self.chat: Scripted = serve(self.reply)
        monkeypatch.setenv("OPENAI_BASE_URL", self.chat.url)

    def has_answered(self) -> bool:
        """Whether the client has taken all answers: with each it has sent another request."""
        return len(self.chat.asked) == ANSWERED + 16

    def reply(self, body: Json) -> Reply | Silence:
        is_answered = self.goes_on or len(self.chat.asked) <= ANSWERED
        return completion("yes") if is_answered else Silence.UNTIL_CLIENT_LEAVES


@pytest.fixture
def server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(serve, monkeypatch)


def stop_when(holds: Callable[[], bool], number: signal.Signals, *options: str) -> tuple[int, str]:
    """(exit status, what was told) of the query, sent a signal once something holds."""
    command = [*COMMAND, "sql", QUERY, "-m", "openai:m", "-f", "json", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        until(holds)
        running.send_signal(number)
        _, told = running.communicate(timeout=60)
        return running.returncode, told


@pytest.mark.parametrize(
    ("number", "status", "told"),
    [
        (signal.SIGKILL, -signal.SIGKILL, ""),
        (signal.SIGINT, 130, "Answers so far are in {path} (20 new); run the same command"),
    ],
)
def test_a_query_that_is_stopped_goes_on_where_it_was(
    server: Server, tmp_path: Path, number: signal.Signals, status: int, told: str
) -> None:
    path = tmp_path / "answers.db"
    ledger = ["--ledger", str(path)]
    # The last answers are on file although no other comes. All requests have reached the server, so
    # that none is counted among those of the next run.
    ended, said = stop_when(
        lambda: stored(path) == ANSWERED and server.chat.under_way == 16, number, *ledger
    )
    assert ended == status
    assert told.format(path=path) in said
    assert "Traceback" not in said

    server.goes_on, asked = True, len(server.chat.asked)
    command = [*COMMAND, "sql", QUERY, "-m", "openai:m", "-f", "json", *ledger]
    document = json.loads(subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL))
    assert document["rows"] == [{"n": 60}]
    assert document["report"]["ledger_hits"] == ANSWERED
    assert len(server.chat.asked) - asked == 60 - ANSWERED


@pytest.mark.parametrize(
    ("options", "told", "kept"),
    [
        ("--ledger {} --temperature 1", "No new answer is kept", 0),
        ("--ledger {} --temperature 1 --seed 1", "(20 new)", ANSWERED),
        ("", "Interrupted. Give --ledger FILE to keep what is answered.", 0),
    ],
)
def test_an_interrupt_says_what_is_kept(
    server: Server, tmp_path: Path, options: str, told: str, kept: int
) -> None:
    path = tmp_path / "answers.db"
    given = options.format(path).split()
    status, said = stop_when(server.has_answered, signal.SIGINT, *given)
    assert (status, told in said, stored(path)) == (130, True, kept)


def test_an_interrupt_before_the_first_answer_says_so_and_leaves_no_request_open(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = serve(lambda body: Silence.UNTIL_CLIENT_LEAVES)
    monkeypatch.setenv("OPENAI_BASE_URL", chat.url)
    status, said = stop_when(lambda: chat.under_way == 16, signal.SIGINT)
    assert status == 130
    assert "Interrupted. No new answer is kept" in said
    assert "Traceback" not in said
    until(lambda: chat.hung_up == 16)
