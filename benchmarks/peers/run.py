"""A task on one side: programs run, the provider counts, and rows are compared with right ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Side
from benchmarks.peers.programs.job import Job
from benchmarks.peers.provider import Counts, Row, TableProvider
from benchmarks.peers.tasks import GROWTH, Course, Task, right, write
from benchmarks.standin.server import started, until
from relquery.errors import RelqueryError

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds that a program may take."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a side did.

    prompts: texts of the requests that were answered. held: rows with the right value; wrong: with
    another; lost: without the value that they should have. cpu: the processor's seconds after the
    imports, process: from the start. peak: requests under way at once. error: what ended it.
    runs: requests of each run that counts.
    """

    requests: int
    refused: int
    repeated: int
    prompts: tuple[str, ...]
    held: frozenset[str]
    wrong: frozenset[str]
    lost: frozenset[str]
    seconds: float
    cpu: float
    process: float
    peak: int
    error: str | None
    runs: tuple[int, ...] = ()


@dataclass(slots=True)
class _Bench:
    """One side at one task, in a folder of its own."""

    side: Side
    task: Task
    folder: Path
    printed: list[dict[str, Any]] = field(default_factory=list)

    def job(self, standin: TableProvider, rows: Sequence[Row], name: str, *, stored: bool) -> Job:
        table = self.folder / name
        if not table.exists():
            write(rows, table)
        store = self.folder / "store"
        store.mkdir(exist_ok=True)
        where = str(store) if stored else None
        return Job(self.task.kind, standin.url, self.task.model, str(table), where, self.side.form)

    def start(self, job: Job) -> subprocess.Popen[str]:
        command = [str(self.side.python), "-m", self.side.program]
        log = (self.folder / "log").open("w")
        with log:
            return subprocess.Popen(
                [*command, json.dumps(asdict(job))],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, **self.side.settings},
            )

    def finish(self, process: subprocess.Popen[str]) -> None:
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise RelqueryError(self._failed(f"did not end within {PATIENCE:g} seconds")) from None
        lines = out.splitlines()
        if not lines:
            raise RelqueryError(self._failed("ended"))
        self.printed.append(json.loads(lines[-1]))

    def _failed(self, how: str) -> str:
        last = "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])
        return f"{self.side.name} {how} at '{self.task.name}'. It printed:\n{last}"


def measure(side: Side, task: Task, rows: Sequence[Row]) -> Measured:
    """A side at a task. The last rows are those by which a table grows. Raises RelqueryError."""
    with tempfile.TemporaryDirectory() as name:
        bench = _Bench(side, task, Path(name))
        before = rows[: len(rows) * GROWTH // (GROWTH + 1)]
        match task.course:
            case Course.ONCE:
                return _once(bench, before)
            case Course.KILLED:
                return _killed(bench, before)
            case Course.GROWN:
                return _grown(bench, before, rows)


def _once(bench: _Bench, rows: Sequence[Row]) -> Measured:
    with started(bench.task.provider(rows)) as standin:
        bench.finish(bench.start(bench.job(standin, rows, "table", stored=False)))
        return _measured(bench, rows, standin, [standin.counts])


def _killed(bench: _Bench, rows: Sequence[Row]) -> Measured:
    with started(bench.task.provider(rows)) as standin:
        job = bench.job(standin, rows, "table", stored=True)
        process = bench.start(job)
        half = len(rows) // 2
        with suppress(TimeoutError):
            until(lambda: standin.counts.requests >= half, PATIENCE)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        standin.settle()
        if standin.counts.requests < half:
            raise RelqueryError(f"{bench.side.name} did not send half of its requests in time.")
        first = standin.restart()
        bench.finish(bench.start(job))
        return _measured(bench, rows, standin, [first, standin.counts])


def _grown(bench: _Bench, before: Sequence[Row], rows: Sequence[Row]) -> Measured:
    with started(bench.task.provider(rows)) as standin:
        bench.finish(bench.start(bench.job(standin, before, "table", stored=True)))
        standin.restart()
        bench.finish(bench.start(bench.job(standin, rows, "grown", stored=True)))
        grown = standin.restart()
    with started(bench.task.provider(rows, "/moved")) as moved:
        bench.finish(bench.start(bench.job(moved, rows, "grown", stored=True)))
        return _measured(bench, rows, moved, [grown, moved.counts])


def _measured(
    bench: _Bench, rows: Sequence[Row], standin: TableProvider, counts: Sequence[Counts]
) -> Measured:
    """What the last program printed, and what all runs that count have asked."""
    said = bench.printed[-1]
    held, wrong, lost = compared(right(bench.task, rows), said["rows"])
    return Measured(
        sum(each.requests for each in counts),
        sum(each.failed for each in counts),
        sum(each.repeated for each in counts),
        tuple(prompt for each in counts for prompt in each.prompts),
        held,
        wrong,
        lost,
        said["seconds"],
        said["cpu"],
        said["process"],
        standin.peak,
        said["error"],
        tuple(each.requests for each in counts) if len(counts) > 1 else (),
    )


def compared(
    expected: Mapping[str, Any], found: Mapping[str, Any]
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """(rows with the right value, with another or with one that they should not have, without)."""
    held = {row for row, value in expected.items() if row in found and _same(value, found[row])}
    return (
        frozenset(held),
        frozenset(found.keys() - held),
        frozenset(expected.keys() - found.keys()),
    )


def _same(value: Any, given: Any) -> bool:
    """Whether a side gave a value, be it as text."""
    if isinstance(value, dict):
        is_struct = isinstance(given, dict) and given.keys() == value.keys()
        return is_struct and all(_same(each, given[name]) for name, each in value.items())
    return str(value) == str(given).strip()
