"""The process of one statement: it asks the server for answers of the model, and ends with it.

Prompts are sent in portions: a statement leaves room in the queue for others, and no process reads,
tokenises or passes on more of it at once than takes some milliseconds."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NoReturn, TypeVar

import duckdb

from relquery.backends.base import Backend
from relquery.backends.load import default_form
from relquery.backends.local.asking import Piece
from relquery.backends.local.client import EngineClient
from relquery.backends.local.host import Facts, Packed, Sink, Submission
from relquery.backends.remote.link import Link
from relquery.backends.remote.process import (
    EngineProcess,
    Replied,
    Told,
    receive,
    send,
    send_events,
)
from relquery.connection import connect
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError, QueryError
from relquery.ledger import Ledger
from relquery.prompt import Answer, Finish
from relquery.serve.errors import bad_request
from relquery.serve.sql_workers.jobs import JOBS, JobContext, run_sql
from relquery.serve.sql_workers.tables import Tables
from relquery.serve.sql_workers.work import LimitedJob
from relquery.sql.exchange.arrow import Most
from relquery.sql.executor.context import Models
from relquery.sql.retrieval.functions import install_count

T = TypeVar("T")
PORTIONS = 4
"""Portions of one job that are open at once: while one is answered, the next ones wait."""
MOST = 500
"""Prompts of a portion."""


class PortionedEngine:
    """An engine that is sent at most `window` prompts of a job at once, and `most` in all. See
    EngineHost; any thread may use it.

    link: to whoever passes them on.
    """

    def __init__(self, link: Link, window: int, most: int) -> None:
        self.clock, self.closed = link.clock, False
        self._link, self._most, self._asked = link, most, 0
        self._rows = 0  # of the relQuery as the engine knows it
        self._size = max(1, min(MOST, window // PORTIONS))
        self._jobs: dict[Sink, _PortionedJob] = {}
        self._lock = Lock()

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """Send the first portions. Raises HttpError for more prompts than the statement may ask."""
        size = len(submission.prompts)
        with self._lock:
            self._asked += size
            self._rows += size
            if self._asked > self._most:
                raise bad_request(
                    f"The statement asks the model more than {self._most:,} prompts, which is all "
                    "that one may ask. Read fewer rows. Whoever runs the server can allow more: "
                    "--max-rows.",
                    "query",
                    "too_many_rows",
                )
        declared, is_long = submission.declared, size > PORTIONS * self._size
        if is_long and declared is not None and declared.rows is None:
            # The engine is told what is still to come.
            submission = replace(submission, declared=replace(declared, rows=self._rows))

        def ended() -> None:
            del self._jobs[sink]
            if is_long and not self._jobs:  # the engine forgets a relQuery with all its rows
                self._rows = 0

        job = self._jobs[sink] = _PortionedJob(self._link, submission, sink, self._size, ended)
        return all([job.send(is_first=True), *(job.send() for _ in range(PORTIONS - 1))])

    def cancel(self, sink: Sink) -> bool:
        job = self._jobs.get(sink)
        return job is not None and job.cancel()

    def ask(self, question: str, *given: Any) -> Any:
        if question != "prompt_tokens":
            return self._link.ask(question, *given)
        prompts, sampling = given
        counts: list[int] = []
        for start in range(0, len(prompts), self._size):
            some = Packed(prompts[start : start + self._size])
            counts += self._link.ask(question, some, sampling)
        return counts

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return self._link.hear(bell, until)

    def stop(self) -> None:
        """The engine is not the statement's own."""


class _PortionedJob:
    """One job on its way. sink: of the whole job. ended: called when no more answers come. open:
    the portions that are."""

    def __init__(
        self, link: Link, submission: Submission, sink: Sink, size: int, ended: Callable[[], None]
    ) -> None:
        self.sink, self._link, self._submission = sink, link, submission
        self._size, self._ended, self._next = size, ended, 0
        self.open: dict[_Portion, None] = {}
        self._lock = Lock()

    def send(self, *, is_first: bool = False) -> bool:
        """Send the next portion, if there is one; False if the engine is closed. is_first: also an
        empty one."""
        prompts = self._submission.prompts
        with self._lock:
            start = self._next
            if start >= len(prompts) and not is_first:
                return True
            self._next = min(len(prompts), start + self._size)
            some = Packed(prompts[start : self._next])
            portion = _Portion(self, start)
            self.open[portion] = None
            return self._link.submit(replace(self._submission, prompts=some), portion)

    def cancel(self) -> bool:
        """End what is open; False if nothing is."""
        with self._lock:
            left = range(self._next, len(self._submission.prompts))
            self._next = len(self._submission.prompts)
            open_ = list(self.open)
        error = "It was cancelled before it was asked."
        for index in left:
            self.sink.add(index, Answer(None, Finish.CANCELLED, error=error))
        ended = [self._link.cancel(each) for each in open_]
        return any(ended) or bool(left)

    def end(self, portion: _Portion, latency: Latency | None, error: BaseException | None) -> None:
        """A portion has ended: send the next one. What breaks one breaks the job."""
        with self._lock:
            self.open.pop(portion, None)
            if error is not None:
                self._next = len(self._submission.prompts)
                for each in self.open:
                    self._link.drop(each)
                self.open.clear()
        self.send()
        if not self.open:
            self._ended()
            self.sink.end(latency, error)


class _Portion:
    """The Sink of one portion, called by the link's thread. start: the place of its first prompt in
    the job."""

    def __init__(self, job: _PortionedJob, start: int) -> None:
        self._job, self._start = job, start

    def piece(self, index: int, piece: Piece) -> None:
        self._job.sink.piece(self._start + index, piece)

    def add(self, index: int, answer: Answer) -> None:
        self._job.sink.add(self._start + index, answer)

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self._job.end(self, latency, error)


MOST_READ = Most(cells=5_000_000, bytes=256 << 20)
"""Of one result, and of what a statement asks the model about."""
MOST_THREADS = 4
"""Of DuckDB, for one statement."""
_LONG = 0.2  # seconds of a processor after which a statement lets all others go first
_LOOK = 0.05  # seconds between two looks at what it has taken
_NICE = 15
_ARENAS = -8  # M_ARENA_MAX of malloc: each arena takes 64 MiB of the address space
_FIRST = "SELECT LLM('', a) FROM (SELECT 1 AS a WHERE false)"
_FIRST_TO_END = "1000"  # when the machine has no memory left
_NO_MEMORY = ("Out of Memory", "bad allocation", "bad_alloc", "Allocation failure", "allocate")


def prepared(files: Mapping[str, str], memory: str, indexes: str) -> JobContext:
    """What workers begin with: a connection to the tables, and all that statements need is loaded.

    files, memory: see Tables. indexes: folder for those of searched tables.
    """
    connection = connect(_Nobody(), ledger=None, index=indexes, progress=False)
    tables = Tables(files, memory, connection.database)
    database = replace(connection.database, most=MOST_READ)
    connection = replace(connection, database=database)
    desk = JobContext(connection, tables, lambda event: None)
    run_sql(desk, _FIRST, None, {}, "json")
    tables.rest()
    return desk


def serve_one(pipe: Pipe, desk: JobContext) -> NoReturn:
    """Do one job for the server at the other end of the pipe, and end the process."""
    tables = desk.tables
    try:
        tables.begin(min(MOST_THREADS, os.cpu_count() or 1))
        _limit(tables.memory)
        send(pipe, [os.getpid()])
        (work,) = receive(pipe)
        os.setpgid(0, 0)
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        if work.gives_way:
            os.setpriority(os.PRIO_PGRP, 0, usual + _NICE // 2)  # all threads of the process
        Thread(target=_give_way_later, args=(usual + _NICE,), daemon=True).start()
        send_events(pipe, [_done(work, pipe, desk)])
    except (EOFError, OSError):
        pass  # nobody is left to be told
    finally:
        os._exit(0)  # other threads may still compute


def _limit(memory: int) -> None:
    """Limits of this process. memory: bytes that it may take beside what it has now."""
    with suppress(OSError, AttributeError):  # other systems than Linux
        ctypes.CDLL(None).mallopt(_ARENAS, 2)
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _give_way_later(niceness: int) -> None:
    """Let other processes go first once the statement has taken much of the processor, however long
    that took."""
    while time.process_time() < _LONG:
        time.sleep(_LOOK)
    os.setpriority(os.PRIO_PGRP, 0, niceness)


def _done(work: LimitedJob, pipe: Pipe, desk: JobContext) -> Replied:
    server = _Server(pipe, work.facts)
    link = Link(work.facts.name, {}, process=server)
    engine = PortionedEngine(link, work.window, work.most)
    try:
        backend = EngineClient(engine, work.facts, work.tenant, work.declared, work.adapter)
        config = replace(desk.connection.config, form=default_form(backend.name))
        models = _offered(*work.called, backend.name)
        with closing(_ledger(work.answers)) as ledger:
            connection = replace(
                desk.connection, backend=backend, models=models, config=config, ledger=ledger
            )
            install_count(connection.database, backend)
            desk = JobContext(connection, desk.tables, server.tell)
            return Replied(0, JOBS[work.job.name](desk, **work.job.given))
    except BaseException as error:
        return Replied(0, None, _meaning(error, desk.tables))


def _ledger(path: Path) -> Ledger:
    """A file of answers, used as one in memory is: nobody waits for what others are asking. One in
    memory where the disk has no room."""
    try:
        return replace(Ledger.open(path), path=None)
    except ConfigError:
        return Ledger.open()


def _meaning(error: BaseException, tables: Tables) -> BaseException:
    lacks = isinstance(error, MemoryError | duckdb.OutOfMemoryException)
    if lacks or (isinstance(error, QueryError) and any(each in str(error) for each in _NO_MEMORY)):
        return bad_request(
            f"The statement needs more memory than the {tables.size} that the tables and one "
            "statement may take. Read fewer rows or columns, or make smaller values. Whoever runs "
            "the server can allow more: --sql-memory.",
            "query",
            "memory_exceeded",
        )
    if isinstance(error, RecursionError):
        deep = "The statement is nested too deeply. Write it with fewer parts in one another."
        return bad_request(deep, "query", "too_deep")
    return error


def _offered(*names: str) -> Models:
    """What calls may name: the model that the request asks, and no other."""

    def refuse(name: str) -> NoReturn:
        raise QueryError(
            f"This server offers '{names[0]}' here, and not '{name}'. Leave model out, or ask a "
            "server that offers it."
        )

    return Models(names, refuse, default_form)


class _Nobody(Backend):
    """A model that is not asked."""

    @property
    def name(self) -> str:
        return "nobody"

    def answer(self, prompts: Sequence[Any], sampling: Any) -> Any:
        return iter(())


class _Server(EngineProcess):
    """The server, in the place of an engine's process."""

    def __init__(self, pipe: Pipe, facts: Facts) -> None:
        self._pipe, self._facts, self._lock = pipe, facts, Lock()

    def await_ready(self) -> Facts:
        return self._facts

    def send(self, commands: Sequence[Any]) -> None:
        with self._lock:
            send(self._pipe, commands)

    def tell(self, event: Any) -> None:
        """Send what the job says."""
        self.send([Told(0, "tell", (event,))])

    def receive(self) -> list[Any]:
        try:
            return receive(self._pipe)
        except (EOFError, OSError):  # without the server, the process ends
            os.kill(os.getpid(), signal.SIGKILL)
            raise

    def join(self) -> str:
        return ""

    def kill(self) -> None:
        """The server goes on."""

    def close(self) -> None:
        """The server goes on."""
