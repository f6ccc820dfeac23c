"""The server's side of statements: whose turn it is, and what a worker asks the engine."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from relquery.backends.local.host import EngineControl, Sink, Submission
from relquery.backends.remote.process import Desk, Event, Replied, Told, receive, send, send_events
from relquery.engine.requests.declared import Declared
from relquery.errors import CancelledError, ConfigError
from relquery.serve.auth import queue_full
from relquery.serve.errors import bad_request, stopping
from relquery.serve.server import CountedSink, NamedModel, RequestScope
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.pool import SqlWorker, WorkerPool
from relquery.serve.sql_workers.work import LimitedJob, WorkerJob
from relquery.serve.streaming import ResponseStream

AT_ONCE = 8
"""Statements that run at the same time, of all tenants by their weights; one of each may always
run."""
MOST_WAITING = 64
"""Statements of a tenant that may wait for their turn; more are answered 429."""
MOST_TOLD = 8
"""Parts that a statement may tell before they are read; then it waits."""
MOST_ANSWERS = 256 << 20
"""Bytes of the answers that are kept of one tenant; then its file begins anew."""
_MOST_THREADS = 1_000
_SHARE = 10
"""One statement may have this part of the queue open."""
_LOOK = 0.2  # seconds until a statement that waits for its reader looks whether it was stopped


class WorkerTask(ResponseStream[Any]):
    """One job and the parts that it tells, read in the event loop.

    A client that leaves kills the worker. `tell`, `runs_in` and `check` are for the job's thread.
    """

    def __init__(self) -> None:
        super().__init__(self.stop)
        self.value: Any = None
        """What the job gave, once the stream has ended."""
        self.is_delivered = False
        """Whether what is read is its result, for which it may take longer."""
        self._loop = asyncio.get_running_loop()
        self._room = BoundedSemaphore(MOST_TOLD)
        self._reason: str | None = None
        self._worker: SqlWorker | None = None
        self._lock = Lock()

    def tell(self, part: Any) -> None:
        """Say something to whoever reads; wait while they are behind. Raises CancelledError if the
        job was stopped."""
        while not self._room.acquire(timeout=_LOOK):
            self.check()
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(lambda: None if self.over else self.put(part))

    @contextmanager
    def runs_in(self, worker: SqlWorker) -> Iterator[None]:
        """A block in which a worker does the job. Raises CancelledError if it was stopped."""
        with self._lock:
            self.check()
            self._worker = worker
        try:
            yield
        finally:
            with self._lock:  # the worker is another one's after the block
                self._worker = None

    def check(self) -> None:
        """Raises CancelledError if the job was stopped."""
        if self._reason is not None:
            raise CancelledError(self._reason)

    def stop(self, reason: str = "The client has closed the connection.") -> None:
        """End the job; one that has not begun ends as it begins."""
        with self._lock:
            self._reason = reason
            if self._worker is not None:
                self._worker.kill()

    def take_too_long(self, seconds: float) -> None:
        """End the job, unless its result is being read."""
        if not self.is_delivered:
            self.stop(f"It took longer than {seconds:g} seconds.")
            self.finish(CancelledError(self._reason))

    def end(self, done: asyncio.Future[Any]) -> None:
        """The job has ended; of one that was stopped, only that is told."""
        error: BaseException | None = CancelledError("The server stops.")
        if not done.cancelled() and (error := done.exception()) is None:
            self.value = done.result()
        stopped = error is not None and self._reason is not None
        self.finish(CancelledError(self._reason) if stopped else error)

    async def some(self) -> list[Any]:
        parts = await super().some()
        for _ in parts:  # the job may tell more then
            self._room.release()
        return parts

    async def result(self, scope: RequestScope) -> Any:
        """What the job gives. Raises what it raises, and ClientGoneError if the client leaves."""
        await self.all(scope.receive)
        return self.value


class Statements:
    """A queue that runs jobs in workers, so many at once of each tenant; others wait for their
    turn. Used in the event loop; each job has a thread, which passes on what its worker asks.

    share: how many jobs of a tenant may run at once.
    """

    def __init__(
        self,
        pool: WorkerPool,
        config: ServeConfig,
        share: Callable[[str], int] = lambda tenant: AT_ONCE,
    ) -> None:
        self.pool = pool
        self._seconds, self._share = config.sql_seconds, share
        self._window, self._most = config.max_waiting // _SHARE, config.max_rows
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "relquery-task")
        self._running: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._folder = TemporaryDirectory(prefix="relquery-answers-")
        self._files: dict[str, Path] = {}

    def start(
        self,
        scope: RequestScope,
        job: WorkerJob,
        model: NamedModel,
        declared: Declared | None = None,
    ) -> WorkerTask:
        """Have a job done, which asks a model for a request. declared: the relQuery that all of its
        calls belong to.

        Raises HttpError if too many are open, or the server stops.
        """
        scope.server.admission.check_open()
        scope.server.admission.check_room()
        tenant = scope.tenant
        if len(self._waiting[tenant]) >= MOST_WAITING:
            count = self._running[tenant] + MOST_WAITING
            raise queue_full(f"{count} tasks of such requests are open already.")
        scope.model = model.name
        names, limits = scope.server.names_of(model), (self._window, self._most)
        about = model.facts, tenant, declared, model.adapter, names
        work, task = LimitedJob(job, *about, self._file(tenant), *limits), WorkerTask()
        self._waiting[tenant].append(partial(self._begin, task, work, scope, model))
        self._next(tenant)
        return task

    def close(self) -> None:
        """End all workers, and forget the answers."""
        self.pool.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._folder.cleanup()

    def _next(self, tenant: str) -> None:
        """Begin what waits and may run."""
        waiting = self._waiting[tenant]
        while waiting and self._running[tenant] < self._share(tenant):
            waiting.popleft()()
        if not waiting:
            del self._waiting[tenant]

    def _begin(
        self, task: WorkerTask, work: LimitedJob, scope: RequestScope, model: NamedModel
    ) -> None:
        # The first statement of a tenant goes before those of tenants that have several.
        work = work._replace(gives_way=self._running[work.tenant] > 0)
        self._running[work.tenant] += 1
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._seconds, task.take_too_long, self._seconds)
        running = loop.run_in_executor(self._threads, self._run, task, work, scope, model)

        def ended(done: asyncio.Future[Any]) -> None:
            timer.cancel()
            task.end(done)
            self._running -= Counter([work.tenant])  # which forgets those that have none
            self._next(work.tenant)

        running.add_done_callback(ended)

    def _run(
        self, task: WorkerTask, work: LimitedJob, scope: RequestScope, model: NamedModel
    ) -> Any:
        """What a job gives. Raises what it raises, and HttpError if its process ends on the way."""
        task.check()
        worker = self.pool.take(reserved=not work.gives_way)
        hosted = _Hosted(worker.pipe, scope, model, task.tell)
        try:
            with task.runs_in(worker):
                self.pool.refill()
                return hosted.run(work)
        except (EOFError, OSError):
            raise bad_request(
                "The statement has ended its process, as those do that need much more memory than "
                f"the {self.pool.memory} that they may take, or that are nested very deeply. Read "
                "fewer rows or columns, make smaller values, or write it with fewer parts.",
                "query",
                "statement_ended",
            ) from None
        finally:
            worker.kill()
            hosted.close()
            worker.leave()

    def _file(self, tenant: str) -> Path:
        """The answers of a tenant, which no other tenant is given. A full file is left to the
        statements that use it."""
        path = self._files.get(tenant)
        if path is None or (path.exists() and path.stat().st_size > MOST_ANSWERS):
            if path is not None:
                path.unlink()
            path = Path(self._folder.name) / f"{secrets.token_hex(8)}.db"
            self._files[tenant] = path
        return path


class _Hosted:
    """One job of a worker. What comes through its pipe is read by the thread that runs it, which
    asks the engine. See Hosting."""

    def __init__(
        self, pipe: Any, scope: RequestScope, model: NamedModel, tell: Callable[[Any], None]
    ) -> None:
        self._pipe, self._scope, self._model, self._tell = pipe, scope, model, tell
        self._link = model.engine.link
        self._counting: dict[Sink, CountedSink] = {}
        self._outgoing: SimpleQueue[Event | None] = SimpleQueue()
        self._desk = Desk(self, self._outgoing.put)
        self._writer = Thread(target=self._write, name="relquery-sql-out", daemon=True)
        self._writer.start()

    def run(self, work: LimitedJob) -> Any:
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
            self.cancel(sink)
        self._outgoing.put(None)
        self._writer.join()

    def submit(self, submission: Submission, sink: Sink) -> None:
        size = len(submission.prompts)
        counting = CountedSink(
            self._scope, sink, size, ended=lambda: self._counting.pop(sink, None)
        )
        self._counting[sink] = counting
        self._in_loop(lambda: self._scope.opened(size))
        # Whatever a worker says, it asks for its tenant.
        tenant, adapter = self._scope.tenant, self._model.adapter
        if not self._link.submit(replace(submission, tenant=tenant, adapter=adapter), counting):
            self._in_loop(counting.leave)
            sink.end(None, stopping())

    @property
    def engine(self) -> EngineControl:
        """See Hosting: what is posted runs at once."""
        return self

    def cancel(self, sink: Sink) -> bool:
        counting = self._counting.get(sink)
        return counting is not None and self._link.cancel(counting)

    def ask(self, question: str, *given: Any) -> Any:
        try:
            return self._link.ask(question, *given)
        except ConfigError:
            if self._link.closed:
                raise stopping() from None
            raise

    def post(self, command: Callable[[], object]) -> None:
        command()

    def _in_loop(self, count: Callable[[], None]) -> None:
        """Counting is done where answers are counted: in the event loop."""
        if self._link.hop is not None:
            self._link.hop(count)

    def _write(self) -> None:
        """Send events, all that are there at once."""
        events: list[Event] = []
        while (event := self._outgoing.get()) is not None:
            events.append(event)
            if self._outgoing.empty():
                with suppress(OSError):  # the worker has ended
                    send_events(self._pipe, events)
                events = []
