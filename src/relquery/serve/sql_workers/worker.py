"""The process of one statement: it asks the server for answers of the model, and ends with it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NoReturn

import duckdb

from relquery.backends.base import Backend
from relquery.backends.load import default_form
from relquery.backends.local.client import EngineClient
from relquery.backends.local.host import Facts
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
from relquery.errors import ConfigError, QueryError
from relquery.ledger import Ledger
from relquery.serve.errors import bad_request
from relquery.serve.sql_workers.jobs import Desk, done
from relquery.serve.sql_workers.portions import PortionedEngine
from relquery.serve.sql_workers.tables import Tables
from relquery.serve.sql_workers.work import Statement, Work
from relquery.sql.exchange.arrow import Most
from relquery.sql.executor.context import Models
from relquery.sql.retrieval.functions import install_count

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


def prepared(files: Mapping[str, str], memory: str, indexes: str) -> Desk:
    """What workers begin with: a connection to the tables, and all that statements need is loaded.

    files, memory: see Tables. indexes: folder for those of searched tables.
    """
    connection = connect(_Nobody(), ledger=None, index=indexes, progress=False)
    tables = Tables(files, memory, connection.database)
    database = replace(connection.database, most=MOST_READ)
    connection = replace(connection, database=database)
    desk = Desk(connection, tables, lambda event: None)
    done(Statement(_FIRST, None, {}, "json"), desk)
    tables.rest()
    return desk


def serve_one(pipe: Pipe, desk: Desk) -> NoReturn:
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
            _give_way(usual + _NICE // 2)
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


def _give_way(niceness: int) -> None:
    """Let other processes go first. All threads of the process group do."""
    os.setpriority(os.PRIO_PGRP, 0, niceness)


def _give_way_later(niceness: int) -> None:
    """The same once the statement has taken much of the processor, however long that took."""
    while time.process_time() < _LONG:
        time.sleep(_LOOK)
    _give_way(niceness)


def _done(work: Work, pipe: Pipe, desk: Desk) -> Replied:
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
            return Replied(0, done(work.job, Desk(connection, desk.tables, server.tell)))
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
        """See EngineProcess; without the server, the process ends."""
        try:
            return receive(self._pipe)
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGKILL)
            raise

    def join(self) -> str:
        return ""

    def kill(self) -> None:
        """The server goes on."""

    def close(self) -> None:
        """The server goes on."""
