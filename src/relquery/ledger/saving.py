"""Saving of answers to the ledger, by a thread that stores them soon after they arrive."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import Protocol

from relquery.errors import LedgerWarning, warn
from relquery.ledger.claims import HeldClaim
from relquery.ledger.stored import AnswerStore, Fact
from relquery.prompt import Answer

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def before_termination(act: Callable[[], None]) -> Iterator[None]:
    """A block in which SIGTERM and SIGHUP end the process as usual, but only after `act`.

    This applies only in the main thread, where Python handles signals, and only if the program
    has no handler of its own. If it has one, that handler decides how the block ends.
    """
    with ExitStack() as changed:
        if current_thread() is main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    changed.enter_context(_handled(number, act))
        yield


@contextmanager
def _handled(number: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    def end(_: int, frame: FrameType | None) -> None:
        try:
            act()
        finally:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(number, end)
    try:
        yield
    finally:
        if signal.getsignal(number) is end:
            signal.signal(number, signal.SIG_DFL)


_SOON = 0.02  # seconds to collect answers before storing them together
_AGAIN = 0.5  # seconds until a failed write is retried
_LOOKS, _LOOK_SECONDS = 100, 0.05  # how long a terminating process waits for the disk

_TROUBLE = (sqlite3.Error, OSError)  # what storing answers may raise


class Saver(Protocol):
    """A function that stores an answer under its key soon, with its facts, and ends its claim."""

    def __call__(
        self,
        key: bytes,
        answer: Answer,
        fact: Fact | None = None,
        claim: HeldClaim | None = None,
        /,
    ) -> None:
        """From any thread; never waits for the disk."""


@dataclass(frozen=True, slots=True)
class _Item:
    key: bytes
    answer: Answer
    fact: Fact | None
    claim: HeldClaim | None


@contextmanager
def saving(ledger: AnswerStore) -> Iterator[Saver]:
    """A block in which answers are stored under their keys as they arrive, from any thread.

    Each answer is on disk within a tenth of a second, unless the disk is slower. All are on disk
    when the block ends, for any reason, and before SIGTERM ends the process. Passing in an answer
    never waits for the disk. Issues LedgerWarning if some answers could not be stored at the end.
    """
    writer = _Writer(ledger)
    to_end = nullcontext() if ledger.path is None else before_termination(writer.flush)
    with to_end:
        writer.start()
        try:
            yield writer.keep
        finally:
            writer.end()


def save_copies(ledger: AnswerStore, answers: Iterable[tuple[bytes, Answer]]) -> None:
    """Store answers that are already stored under other keys. Issues LedgerWarning if it fails."""
    try:
        ledger.put(answers, are_new=False)
    except _TROUBLE as error:
        warn(
            f"Answers could not be stored again in the ledger {ledger.path}: {error}. Other "
            "queries may ask them again.",
            LedgerWarning,
        )


class _Writer(Thread):
    """A thread that stores answers in batches."""

    def __init__(self, ledger: AnswerStore) -> None:
        # A daemon, so that a hanging disk does not keep the process alive.
        super().__init__(name="relquery-ledger", daemon=True)
        self._ledger = ledger
        # A signal handler may also put items into a SimpleQueue. None ends the thread.
        self._items = SimpleQueue[_Item | Event | None]()
        self._bell = SimpleQueue[None]()
        self._unsaved: list[_Item] = []
        self._problem: Exception | None = None
        self._is_over = self._has_ended = False

    def keep(
        self,
        key: bytes,
        answer: Answer,
        fact: Fact | None = None,
        claim: HeldClaim | None = None,
        /,
    ) -> None:
        self._items.put(_Item(key, answer, fact, claim))

    def flush(self) -> None:
        """Wait until all earlier answers are stored, or storing them has failed."""
        stored = Event()
        self._items.put(stored)
        self._bell.put(None)
        for _ in range(_LOOKS):
            if stored.wait(_LOOK_SECONDS) or self._has_ended:
                return

    def end(self) -> None:
        self._items.put(None)
        self._bell.put(None)
        try:
            self.join()
        except KeyboardInterrupt:  # a second one does not wait
            self.join()
            raise
        if self._unsaved:
            warn(
                f"{len(self._unsaved)} answers are not in the ledger {self._ledger.path}: "
                f"{self._problem}. Free disk space or use another file; otherwise they will be "
                "asked again.",
                LedgerWarning,
            )

    def run(self) -> None:
        while not self._is_over:
            stored = self._gather()
            self._store()
            for event in stored:
                event.set()
        self._has_ended = True

    def _gather(self) -> list[Event]:
        """Collect new answers. Returns the events to set once they are stored."""
        items, waiting = [], []
        with suppress(Empty):
            items.append(self._items.get(timeout=_AGAIN if self._unsaved else None))
        with suppress(Empty):
            self._bell.get(timeout=_AGAIN if self._unsaved else _SOON)
        items += [self._items.get() for _ in range(self._items.qsize())]
        for item in items:
            match item:
                case None:
                    self._is_over = True
                case Event():
                    waiting.append(item)
                case _:
                    self._unsaved.append(item)
        return waiting

    def _store(self) -> None:
        try:
            self._ledger.put(
                [(entry.key, entry.answer) for entry in self._unsaved],
                facts=[entry.fact for entry in self._unsaved if entry.fact is not None],
                claims=[entry.claim for entry in self._unsaved if entry.claim is not None],
            )
        except _TROUBLE as error:
            self._problem = error
        else:
            self._unsaved, self._problem = [], None
