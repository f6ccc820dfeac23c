"""The server's side of a statement: it passes on what the worker asks the engine and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from relquery.backends.local.batches import Sink
from relquery.backends.remote.process import Desk, Event, Replied, Told, receive, send, send_events
from relquery.backends.service.client import EngineClient, Submission
from relquery.ledger import Ledger
from relquery.serve.errors import HttpError
from relquery.serve.sql_workers.pool import Pool
from relquery.serve.sql_workers.worker import Job, Work
from relquery.serve.tasks import Task

MOST_ANSWERS = 200_000
"""Answers that are kept of one tenant; then its ledger begins anew."""


class Statements:
    """Runs jobs in workers. Any thread may use it. pool: see Pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._ledgers: dict[str, Ledger] = {}
        self._lock = Lock()

    def run(self, job: Job, backend: EngineClient, task: Task[Any]) -> Any:
        """What a job gives. Raises what it raises, and HttpError if its process ends on the way.

        backend: whom it may ask. task: ends it, and tells what it says.
        """
        worker = self.pool.take()
        ledger = self._ledger(backend.tenant)
        hosted = _Hosted(worker.pipe, backend, ledger, task.tell)
        try:
            with task.stopping.stops(worker.kill):
                self.pool.refill()
                return hosted.run(job)
        except (EOFError, OSError):
            raise _ended(self.pool.memory) from None
        finally:
            worker.kill()
            hosted.close()
            self.pool.leave(worker)

    def close(self) -> None:
        """End all workers, and forget the answers."""
        self.pool.close()
        for ledger in self._ledgers.values():
            ledger.close()

    def _ledger(self, tenant: str) -> Ledger:
        """The answers of a tenant, which no other tenant is given.

        A full one is left to the statements that use it.
        """
        with self._lock:
            found = self._ledgers.get(tenant)
            if found is None or found.stored >= MOST_ANSWERS:
                found = self._ledgers[tenant] = Ledger.open()
            return found


class _Hosted:
    """One job of a worker. What comes through its pipe is read by the thread that runs it."""

    def __init__(
        self, pipe: Any, backend: EngineClient, ledger: Ledger, tell: Callable[[Any], None]
    ) -> None:
        self._pipe, self._backend, self._tell = pipe, backend, tell
        self._outgoing: SimpleQueue[Event | None] = SimpleQueue()
        self._desk = Desk(_Asked(backend, ledger), self)
        self._writer = Thread(target=self._write, name="relquery-sql-out", daemon=True)
        self._writer.start()

    def run(self, job: Job) -> Any:
        """What the job gives. Raises what it raises, and EOFError or OSError if the worker ends."""
        backend = self._backend
        work = Work(job, backend.facts, backend.tenant, backend.declared, backend.adapter)
        send(self._pipe, [work])
        while True:
            for each in receive(self._pipe):
                match each:
                    case Replied(_, value, error):
                        if error is not None:
                            raise error
                        return value
                    case Told(_, _, given):
                        self._tell(*given)
                    case _:
                        self._desk.take(each)

    def close(self) -> None:
        """Cancel what was asked and is not answered. The worker has ended."""
        for sink in list(self._desk.jobs.values()):
            self._backend.serving.cancel(sink)
        self._outgoing.put(None)
        self._writer.join()

    def put(self, event: Event) -> None:
        """Send an event soon; never waits."""
        self._outgoing.put(event)

    def _write(self) -> None:
        """Send events, all that are there at once."""
        events: list[Event] = []
        while (event := self._outgoing.get()) is not None:
            events.append(event)
            if self._outgoing.empty():
                with suppress(OSError):  # the worker has ended
                    send_events(self._pipe, events)
                events = []


class _Asked:
    """The engine and the ledger of a tenant, asked on the thread that reads. See Hosting."""

    def __init__(self, backend: EngineClient, ledger: Ledger) -> None:
        self._backend, self._engine, self._ledger = backend, backend.serving, ledger

    def submit(self, submission: Submission, sink: Sink) -> None:
        # Whatever a worker says, it asks for its tenant.
        mine = replace(submission, tenant=self._backend.tenant, adapter=self._backend.adapter)
        try:
            self._engine.submit(mine, sink)
        except Exception as error:
            sink.end(None, error)

    def end(self, sink: Sink) -> bool:
        return self._engine.cancel(sink)

    def foresee(self, sink: Sink) -> float | None:
        return self._engine.forecast(sink)

    def told(self, question: str, given: Sequence[Any]) -> Any:
        match question, given:
            case "ledger.find", (keys,):
                return self._ledger.find(keys)
            case "ledger.put", (answers, are_new):
                return self._ledger.put(answers, are_new=are_new)
            case "ledger.has_answers", _:
                return self._ledger.has_answers
        return self._engine.ask(question, *given)

    def post(self, command: Callable[[], object]) -> None:
        command()


def _ended(memory: str) -> HttpError:
    return HttpError(
        400,
        "The statement has ended its process, as those do that need much more memory than the "
        f"{memory} that they may take, or that are nested very deeply. Read fewer rows or columns, "
        "make smaller values, or write it with fewer parts.",
        "statement_ended",
        "query",
    )
