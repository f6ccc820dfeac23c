"""A server and its engine as threads of this process: what a request meets is the same, and
starting takes a fraction of what two processes take."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

from relquery.backends.local.host import Facts
from relquery.backends.remote import link, process
from relquery.backends.remote.process import Command, receive, send
from relquery.serve import run, serving
from relquery.serve.logs import QUIET, JsonLines
from relquery.serve.serving import Listener
from relquery.serve.settings import ServeConfig

STARTING = 60.0  # seconds that a server has to take requests


class _Outbox(process.Outbox):
    """As the process's own, which ends the process where the asker is gone."""

    def abandoned(self) -> None:
        """Nobody is told."""


class EngineThread:
    """In place of EngineProcess."""

    pid = None

    def __init__(self, model: str, options: Mapping[str, Any], prepare: object = None) -> None:
        self.model, self.options, self.prepare = model, options, prepare
        self._pipe, theirs = multiprocessing.Pipe()
        given = (theirs, model, options)
        self._thread = threading.Thread(target=self._host, args=given, daemon=True)
        self._thread.start()

    @staticmethod
    def _host(pipe: Connection, model: str, options: Mapping[str, Any]) -> None:
        with suppress(EOFError, OSError), pipe:
            outbox = _Outbox(pipe)
            if (worker := process.opened(outbox, model, options)) is not None:
                process.Desk(worker, outbox.put).serve(pipe)
                worker.stop()

    def await_ready(self) -> Facts:
        (event,) = receive(self._pipe)
        if event.error is not None:
            raise event.error
        facts: Facts = event.value
        return facts

    def send(self, commands: Sequence[Command]) -> None:
        send(self._pipe, commands)

    def receive(self) -> list[Any]:
        return receive(self._pipe)

    def join(self) -> str:
        self._thread.join()
        return ""

    def kill(self) -> None:
        """It ends when it is told to stop."""

    def close(self) -> None:
        self._pipe.close()


class _Lines(logging.Handler):
    """What a server's process would log, as JSON."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@contextmanager
def _logged(lines: list[str]) -> Iterator[None]:
    """The log goes to these lines, too."""
    handler, named = _Lines(lines), [logging.getLogger(name) for name in (None, *QUIET)]
    before = [each.level for each in named]
    named[0].addHandler(handler)
    for each in named:
        each.setLevel(logging.WARNING if each.parent else logging.INFO)
    yield
    named[0].removeHandler(handler)
    for each, level in zip(named, before, strict=True):
        each.setLevel(level)


@contextmanager
def in_threads(config: ServeConfig, lines: list[str]) -> Iterator[int]:
    """The port of a server until the end of the block, which stops it as a signal does."""
    told: SimpleQueue[int | BaseException] = SimpleQueue()
    listeners: list[Listener] = []

    class Kept(Listener):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            listeners.append(self)

    def serve() -> None:
        try:
            run.serve(config, lambda server, port: told.put(port))
        except BaseException as error:
            told.put(error)

    thread = threading.Thread(target=serve, daemon=True)
    with ExitStack() as until_it_serves, _logged(lines):
        for module, name, stand_in in (
            (serving, "Listener", Kept),
            (run, "set_up", lambda *given: None),
            (serving, "settle", lambda: None),
            (run, "EngineProcess", EngineThread),
            (link, "EngineProcess", EngineThread),
        ):
            until_it_serves.enter_context(patch.object(module, name, stand_in))
        thread.start()
        port = told.get(timeout=STARTING)
        until_it_serves.close()
        if isinstance(port, BaseException):
            raise port
        try:
            yield port
        finally:
            listeners[0].handle_exit(signal.SIGTERM, None)
            thread.join(40)
            assert not thread.is_alive()
