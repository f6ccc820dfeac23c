"""What a killed process has lost, and what is paid twice."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.killing import (
    IN_FLIGHT,
    PATIENCE,
    Watched,
    finish,
    kill,
    start,
    stored,
    table,
    wait_until,
)
from benchmarks.providers.sizes import choose
from benchmarks.standin.server import started
from benchmarks.templates import template
from relquery.errors import RelqueryError

WORDS = template("providers")
MODEL = "openai:gpt-4o-mini"
MOMENT = 0.1
"""Seconds after which an answer that arrived must be kept."""
ROWS, TWO_ROWS, BATCH_ROWS = 900, 200, 60
BATCHES = {"openai:gpt-4o-mini": "POST /v1/batches", "anthropic:claude-sonnet-5":
           "POST /v1/messages/batches"}  # fmt: skip
"""The requests that submit a batch, by model."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What one kind of kills came to.

    lost: answers that had been read MOMENT before a kill and are not in the ledger. again: requests
    for a row that had been asked before. in_flight: requests without a stored answer at the kills,
    which may be asked again. paid: requests for a row whose answer was stored. wrong: rows of the
    last run without the right value.
    """

    what: str
    kills: int
    rows: int
    requests: int
    lost: int
    again: int
    in_flight: int
    paid: int
    wrong: int


@dataclass(slots=True)
class Kills(Part):
    """The part."""

    name = "kills"
    title = "Kills"
    found: list[Killed] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        count, chance = choose(settings.quick).kills, Random(settings.seed)
        live = self._note(live_kills(count, chance), say)
        two = [self._note(each, say) for each in two_processes(count, chance)]
        batches = [self._note(each, say) for each in batch_kills(count, chance)]
        kept = f"of {live.requests:,} requests in {live.kills} kills"
        yield Figure("answers_lost", live.lost, 0, False, kept, any_size=True)
        yield Figure("stored_answers_asked_again", live.paid, 0, False, kept, any_size=True)
        note = f"{live.again} asked again, {live.in_flight} were in flight"
        beyond = max(0, live.again - live.in_flight)
        yield Figure("asked_again_beyond_in_flight", beyond, 0, False, note, any_size=True)
        both = sum(max(0, each.again - each.in_flight) for each in two)
        note = f"in {sum(each.requests for each in two):,} requests of two processes at a time"
        yield Figure("paid_by_both", both, 0, False, note, any_size=True)
        twice = sum(each.again for each in batches)
        note = f"requests, in {sum(each.kills for each in batches)} kills"
        yield Figure("submitted_twice", twice, 0, False, note, any_size=True)
        wrong = sum(each.wrong for each in self.found)
        yield Figure("rows_wrong_after_kills", wrong, 0, False, "", any_size=True)

    def _note(self, one: Killed, say: Say) -> Killed:
        self.found.append(one)
        say(" ".join(_cells(one)))
        return one

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("kills", in_flight=IN_FLIGHT, rows=ROWS)
        names = (
            "what", "kills", "rows", "requests", "answers lost", "asked again", "in flight",
            "stored and asked again", "rows wrong",
        )  # fmt: skip
        yield from markdown(names, map(_cells, self.found))


def _cells(one: Killed) -> tuple[str, ...]:
    numbers = (one.kills, one.rows, one.requests, one.lost)
    more = (one.again, one.in_flight, one.paid, one.wrong)
    return (one.what, *(f"{number:,}" for number in (*numbers, *more)))


def right(rows: int) -> list[str]:
    """What a query that has ended prints, sorted."""
    return sorted(f"row {row}" for row in range(rows))


def _wrong(said: list[str], rows: int) -> int:
    return (Counter(right(rows)) - Counter(said)).total()


def live_kills(kills: int, chance: Random) -> Killed:
    """One query that is killed again and again while it asks, and ends at last."""
    with TemporaryDirectory() as name, started(Watched()) as seen:
        folder = Path(name)
        rows, ledger = table(folder, ROWS), folder / "run.db"
        kept, lost, paid, in_flight = set[int](), 0, 0, 0
        for _ in range(kills):
            begin, given = len(seen.came), len(seen.gave)
            enough = begin + chance.randint(IN_FLIGHT + 1, ROWS // (kills + 2))
            process = start(seen, rows, ledger, MODEL)
            wait_until(lambda enough=enough: len(seen.came) >= enough, process)  # type: ignore[misc]
            time.sleep(chance.random() * 0.1)
            when = kill(process)
            arrived = _arrived(seen, begin, given, when - MOMENT)
            time.sleep(0.2)  # what was sent by then has come
            now = set(stored(ledger))
            came = seen.came[begin:]
            lost += len(arrived - now)
            paid += sum(row in kept for _, row in came)
            in_flight += len({row for _, row in came} - now)
            kept = now
        begin = len(seen.came)
        said = finish(start(seen, rows, ledger, MODEL))
        paid += sum(row in kept for _, row in seen.came[begin:])
        again = len(seen.came) - len({row for _, row in seen.came})
        return Killed(
            "a query, again and again", kills, ROWS, len(seen.came), lost, again, in_flight, paid,
            _wrong(said, ROWS),
        )  # fmt: skip


def _arrived(seen: Watched, begin: int, given: int, until: float) -> set[int]:
    """Rows whose answers a process had certainly read by then. begin, given: requests and answers
    before it began.

    It has IN_FLIGHT requests under way, so with each further one it has read an answer. That one
    was sent says less: on a busy machine it may not have been read.
    """
    asked = sum(moment < until for moment, _ in seen.came[begin:])
    sent = [row for moment, row in seen.gave[given:] if moment < until]
    return set(sent[: max(0, asked - IN_FLIGHT)])


def two_processes(kills: int, chance: Random) -> Iterator[Killed]:
    """Two at a time on one ledger: both end; one is killed, and the other ends."""
    yield _two("two processes", max(1, kills // 5), None)
    yield _two("two processes, one of them killed", max(1, kills // 2), chance)


def _two(what: str, times: int, chance: Random | None) -> Killed:
    requests = again = in_flight = wrong = 0
    for _ in range(times):
        with TemporaryDirectory() as name, started(Watched()) as seen:
            folder = Path(name)
            rows, ledger = table(folder, TWO_ROWS), folder / "run.db"
            first, second = (start(seen, rows, ledger, MODEL) for _ in range(2))
            if chance is None:
                said = [finish(first), finish(second)]
            else:
                enough = chance.randint(IN_FLIGHT + 1, TWO_ROWS // 2)
                wait_until(lambda enough=enough: len(seen.came) >= enough, first)  # type: ignore[misc]
                kill(first)
                in_flight += len({row for _, row in seen.came} - set(stored(ledger)))
                said = [finish(second)]
            wrong += sum(_wrong(each, TWO_ROWS) for each in said)
            requests += len(seen.came)
            again += len(seen.came) - len({row for _, row in seen.came})
    kills = 0 if chance is None else times
    return Killed(what, kills, TWO_ROWS * times, requests, 0, again, in_flight, 0, wrong)


def batch_kills(kills: int, chance: Random) -> Iterator[Killed]:
    """With --batch: killed when the batch was taken and its id not stored, and at any moment."""
    times = -(-kills // (2 * len(BATCHES)))
    with ThreadPoolExecutor() as pool:  # they wait most of the time
        begun = [
            pool.submit(_batches, f"--batch, {model}, {when}", model, times, some)
            for model in BATCHES
            for when, some in (
                ("once it is taken", None),
                ("at any moment", Random(chance.random())),
            )
        ]
        for each in begun:
            yield each.result()


def _kill_when_taken(seen: Watched, process: subprocess.Popen[str], submits: str) -> None:
    """Kill a process when its batch was taken, before the reply that says its id goes out."""
    done = threading.Event()

    def after(what: str) -> None:
        if what == submits and not done.is_set():
            process.send_signal(signal.SIGKILL)
            process.wait()
            done.set()

    seen.after = after
    is_taken = done.wait(PATIENCE)
    process.communicate()
    if not is_taken:
        raise RelqueryError("relquery sql did not submit a batch.")


def _batches(what: str, model: str, times: int, chance: Random | None) -> Killed:
    requests = again = wrong = 0
    for _ in range(times):
        with TemporaryDirectory() as name, started(Watched(batch_seconds=3.0)) as seen:
            folder = Path(name)
            rows, ledger = table(folder, BATCH_ROWS), folder / "run.db"
            batch = ("--batch", "--wait")
            process = start(seen, rows, ledger, model, batch)
            if chance is None:
                _kill_when_taken(seen, process, BATCHES[model])
            else:
                begun = threading.Event()
                seen.before = lambda what, begun=begun: begun.set()  # type: ignore[misc]
                wait_until(begun.is_set, process)
                time.sleep(chance.random() * 1.0)
                kill(process)
            said = finish(start(seen, rows, ledger, model, batch))
            batches = seen.batches.batches
            asked = [
                name
                for each in batches
                if each.problem is None
                for name, _ in each.lines
                if name not in each.refused
            ]
            wrong += _wrong(said, BATCH_ROWS)
            requests += len(asked)
            again += len(asked) - len(set(asked))
    return Killed(what, times, BATCH_ROWS * times, requests, 0, again, 0, 0, wrong)
