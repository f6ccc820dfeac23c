"""`relquery sql` as a process over the stand-in, killed while it asks."""

from __future__ import annotations

import csv
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.standin.http import Request, Response
from benchmarks.standin.prompt import Sent
from benchmarks.standin.provider import Provider
from relquery.errors import RelqueryError

QUERY = "SELECT LLM('Repeat the number.', t.*) AS said FROM t"
IN_FLIGHT = 16
SECONDS = 0.05
"""Until an answer comes."""
PATIENCE = 240.0
"""Seconds that a process may take."""
_ROW = re.compile(r"row number (\d+)")


def row_of(sent: Sent) -> int:
    """Which row a prompt asks about."""
    match = _ROW.search(sent.text)
    assert match is not None
    return int(match[1])


class Watched(Provider):
    """A provider that answers each row with its number, and notes when requests and answers go.

    seconds: until an answer comes. batch_seconds: until a batch ends.
    """

    def __init__(self, seconds: float = SECONDS, batch_seconds: float = 1.0) -> None:
        super().__init__(
            answer=lambda sent: f"row {row_of(sent)}",
            begins=seconds,
            ends=seconds,
            batch_seconds=batch_seconds,
        )
        self.before: Callable[[str], None] = lambda what: None
        self.after: Callable[[str], None] = lambda what: None
        """Called around each request with its method and path."""
        self.came: list[tuple[float, int]] = []
        self.gave: list[tuple[float, int]] = []

    async def handle(self, request: Request) -> Response:
        """Answer as a provider does."""
        what = f"{request.method} {request.route}"
        self.before(what)
        match = _ROW.search(request.body.decode()) if what.endswith("/completions") else None
        if match is not None:
            self.came.append((time.monotonic(), int(match[1])))
        reply = await super().handle(request)
        if match is not None:
            self.gave.append((time.monotonic(), int(match[1])))
        self.after(what)
        return reply


def table(folder: Path, rows: int) -> Path:
    """A file with numbered rows."""
    path = folder / "t.csv"
    lines = (f"row number {row}\n" for row in range(rows))
    path.write_text("note\n" + "".join(lines), encoding="utf-8")
    return path


def start(
    seen: Watched, rows: Path, ledger: Path, model: str, options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """The process."""
    server = seen.root if model.startswith("anthropic:") else seen.url
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "relquery", "sql", QUERY, "--table", f"t={rows}"),
            *("--model", model, "--base-url", server, "--ledger", str(ledger)),
            *("--concurrency", str(IN_FLIGHT), "--format", "csv"),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"},
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    """The values that it printed, sorted. Raises RelqueryError if it failed or did not end."""
    try:
        said, told = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        _, told = process.communicate()
        raise RelqueryError(f"relquery sql did not end. It printed:\n{told[-2000:]}") from None
    if process.returncode:
        raise RelqueryError(f"relquery sql ended with {process.returncode}:\n{told[-2000:]}")
    return sorted(value for (value,) in list(csv.reader(said.splitlines()))[1:])


def kill(process: subprocess.Popen[str]) -> float:
    """Kill it; gives when, as `Watched` counts."""
    when = time.monotonic()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return when


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something holds. Raises RelqueryError if the process ends first, or never does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            _, told = process.communicate()
            raise RelqueryError(f"relquery sql ended too soon:\n{told[-2000:]}")
        time.sleep(0.002)


def stored(ledger: Path) -> list[int]:
    """The rows whose answers are in a ledger, as another process reads it."""
    with closing(sqlite3.connect(ledger)) as file:
        return [int(text.split()[1]) for (text,) in file.execute("SELECT text FROM answers")]
