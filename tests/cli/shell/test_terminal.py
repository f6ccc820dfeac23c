"""The shell in a real terminal, as a process of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-c", "from relquery.cli import main; main()", "sql"]
OWN_TERMINAL = (
    "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.default_int_handler); "
)
"""Lets a process hear the Ctrl-C of its terminal."""
READY = r"relquery> ?$"
PATIENCE = 60.0
_CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


class Terminal:
    """A shell and what it has shown since it was last waited for, without colours and the like."""

    def __init__(self, arguments: tuple[str, ...], state: Path, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        known = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(state)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL + COMMAND[2], "sql", *arguments],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=os.environ | known | environment,
        )  # fmt: skip
        os.close(slave)
        self._shown = b""

    def press(self, keys: str) -> None:
        """Type at the prompt, once it is there."""
        self.until(READY)
        self.type(keys)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def until(self, pattern: str) -> str:
        """Wait for what fits a pattern; what was shown up to its end."""
        end = time.monotonic() + PATIENCE
        while (found := re.search(pattern, shown := self._text())) is None:
            assert time.monotonic() < end, f"{pattern} was not shown: {shown}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self._shown += os.read(self.master, 65536)
                except OSError:  # of Linux, when the process has ended
                    pytest.fail(f"{pattern} was not shown: {shown}")
        self._shown = shown[found.end() :].encode()
        return shown[: found.end()]

    def _text(self) -> str:
        return _CONTROLS.sub(b"", self._shown).decode(errors="replace")

    def leave(self) -> int:
        """Press Ctrl-D; the exit code."""
        self.press("\x04")
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    os.read(self.master, 65536)
                except OSError:
                    break
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


Open = Callable[..., Terminal]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, **environment: str) -> Terminal:
        opened.append(Terminal(arguments, tmp_path / "state", **environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_a_person_asks_stops_a_run_and_finds_what_was_typed_in_the_next_session(
    shell: Open, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.parquet"
    duckdb.execute(f"COPY (SELECT 'text ' || i AS a FROM range(9000) r(i)) TO '{rows}'")
    first = shell("-t", "movies=demo:movies", "-t", str(rows))
    first.press(
        "SELECT movietitle,\rLLM('Is it positive? Answer Yes or No.', reviewcontent) AS p\r"
    )
    first.type("FROM movies LIMIT 3;\r")
    assert "The Golden Echo     │ Yes" in first.until("3 LLM calls")
    first.press("SELECT count(LLM('Good?', a, labels := ['Yes', 'No'])) AS m FROM rows;\r")
    first.until(r"[1-9][\d,]* of 9,000")
    first.type("\x03")
    first.until(r"Interrupted. [\d,]+ new answers are kept, so the same statement continues")
    first.press("SELECT 6 * 7 AS n;\r")
    first.until("42")
    assert first.leave() == 0

    second = shell("-t", "movies=demo:movies")
    second.press("\x12Is it pos")
    second.until(r"reviewcontent\) AS p")
    second.type("\x03SELECT 41 + 1 AS n, movieti\t")
    second.until(r"movieti\s*tle")
    second.type("\r FROM movies LIMIT 1;\r")
    assert "42" in second.until("Orchard of the Wind")
    assert second.leave() == 0


def test_a_dumb_terminal_without_colours_works(shell: Open) -> None:
    dumb = shell("--no-history", TERM="dumb", NO_COLOR="1")
    dumb.press("SELECT 41\r+ 1 AS n;\r")
    dumb.until("42")
    dumb.press("SELECT x;\r")
    dumb.until("Error: ")
    assert dumb.leave() == 0


def test_results_that_nobody_reads_end_the_shell_quietly() -> None:
    opened = [_unread(form) for form in ("csv", "table")]  # side by side, as starting takes long
    for running, terminal in opened:
        _, err = running.communicate(timeout=PATIENCE)
        os.close(terminal)
        assert b"Traceback" not in err
        assert b"Exception" not in err


def _unread(form: str) -> tuple[subprocess.Popen[bytes], int]:
    """A shell that was given a query, and whose standard output nobody reads; its terminal."""
    reader, writer = os.pipe()
    os.close(reader)
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, "--no-history", "-f", form], stdin=slave, stdout=writer,
        stderr=subprocess.PIPE, env=os.environ | {"TERM": "dumb"},
    )  # fmt: skip
    os.close(writer)
    os.close(slave)
    os.write(master, b"SELECT 1 AS n;\n")
    return running, master
