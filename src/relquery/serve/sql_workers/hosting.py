"""The server's side of a statement: it passes on what the worker asks the engine."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

from relquery.backends.local.batches import Sink
from relquery.backends.remote.process import Desk, Event, Replied, Told, receive, send, send_events
from relquery.backends.service.client import EngineClient, Submission
from relquery.serve.errors import HttpError, bad_request
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.pool import Pool
from relquery.serve.sql_workers.work import Job, Work
from relquery.serve.tasks import Task

MOST_ANSWERS = 256 << 20
"""Bytes of the answers that are kept of one tenant; then its file begins anew."""
_SHARE = 10
"""One statement may have this part of the queue open."""


class Statements:
    """Runs jobs in workers. Any thread may use it. pool: see Pool."""

    def __init__(self, pool: Pool, config: ServeConfig) -> None:
        self.pool = pool
        self._window, self._most = config.max_waiting // _SHARE, config.max_rows
        self._folder = TemporaryDirectory(prefix="relquery-answers-")
        self._files: dict[str, Path] = {}
        self._running: Counter[str] = Counter()
        self._lock = Lock()

    def run(self, job: Job, backend: EngineClient, called: tuple[str, ...], task: Task[Any]) -> Any:
        """What a job gives. Raises what it raises, and HttpError if its process ends on the way.

        backend: whom it may ask. called: its model's names. task: ends it, and tells what it says.
        """
        with self._counted(backend.tenant) as is_first:
            worker = self.pool.take(reserved=is_first)
            hosted = _Hosted(worker.pipe, backend, task.tell)
            try:
                with task.stopping.stops(worker.kill):
                    self.pool.refill()
                    return hosted.run(self._work(job, backend, called, is_first=is_first))
            except (EOFError, OSError):
                raise _ended(self.pool.memory) from None
            finally:
                worker.kill()
                hosted.close()
                self.pool.leave(worker)

    def close(self) -> None:
        """End all workers, and forget the answers."""
        self.pool.close()
        self._folder.cleanup()

    @contextmanager
    def _counted(self, tenant: str) -> Iterator[bool]:
        """A block in which a statement of a tenant runs: whether no other one does, so that it goes
        before those of tenants that have several."""
        with self._lock:
            is_first = not self._running[tenant]
            self._running[tenant] += 1
        try:
            yield is_first
        finally:
            with self._lock:
                self._running -= Counter([tenant])  # which forgets those that have none

    def _work(
        self, job: Job, backend: EngineClient, called: tuple[str, ...], *, is_first: bool
    ) -> Work:
        return Work(
            job,
            backend.facts,
            backend.tenant,
            backend.declared,
            backend.adapter,
            called,
            answers=self._file(backend.tenant),
            window=self._window,
            most=self._most,
            gives_way=not is_first,
        )

    def _file(self, tenant: str) -> Path:
        """The answers of a tenant, which no other tenant is given. A full file is left to the
        statements that use it."""
        with self._lock:
            found = self._files.get(tenant)
            if found is None or (found.exists() and found.stat().st_size > MOST_ANSWERS):
                if found is not None:
                    found.unlink()
                name = f"{secrets.token_hex(8)}.db"
                found = self._files[tenant] = Path(self._folder.name) / name
            return found


class _Hosted:
    """One job of a worker. What comes through its pipe is read by the thread that runs it, which
    asks the engine. See Hosting and Outgoing."""

    def __init__(self, pipe: Any, backend: EngineClient, tell: Callable[[Any], None]) -> None:
        self._pipe, self._tell = pipe, tell
        self._tenant, self._adapter, self._engine = backend.tenant, backend.adapter, backend.serving
        self._outgoing: SimpleQueue[Event | None] = SimpleQueue()
        self._desk = Desk(self, self)
        self._writer = Thread(target=self._write, name="relquery-sql-out", daemon=True)
        self._writer.start()

    def run(self, work: Work) -> Any:
        """What the job gives. Raises what it raises, and EOFError or OSError if the worker ends."""
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
            self._engine.cancel(sink)
        self._outgoing.put(None)
        self._writer.join()

    def submit(self, submission: Submission, sink: Sink) -> None:
        # Whatever a worker says, it asks for its tenant.
        try:
            self._engine.submit(
                replace(submission, tenant=self._tenant, adapter=self._adapter), sink
            )
        except Exception as error:
            sink.end(None, error)

    def end(self, sink: Sink) -> bool:
        return self._engine.cancel(sink)

    def foresee(self, sink: Sink) -> float | None:
        return self._engine.forecast(sink)

    def told(self, question: str, given: Sequence[Any]) -> Any:
        return self._engine.ask(question, *given)

    def post(self, command: Callable[[], object]) -> None:
        command()

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


def _ended(memory: str) -> HttpError:
    return bad_request(
        "The statement has ended its process, as those do that need much more memory than the "
        f"{memory} that they may take, or that are nested very deeply. Read fewer rows or columns, "
        "make smaller values, or write it with fewer parts.",
        "query",
        "statement_ended",
    )
