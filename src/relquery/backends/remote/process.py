"""The process of an engine, as the one who started it sees it."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from relquery.backends.remote.host import host
from relquery.backends.remote.messages import Command, receive, send
from relquery.backends.service.serving import Facts
from relquery.errors import ModelError


class EngineProcess:
    """One process, from its start to its end, and the pipe to it."""

    def __init__(
        self, model: str, options: Mapping[str, Any], prepare: Callable[[], None] | None = None
    ) -> None:
        """Start it; it then loads the model.

        prepare: called in the process first, e.g. to set up its log; can be pickled.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        self._process = context.Process(
            target=host,
            args=(theirs, model, options, prepare or partial(logging.basicConfig, level=level)),
            name="relquery-engine",
            daemon=True,
        )
        self._process.start()
        theirs.close()  # so that the pipe ends when the process does

    @property
    def pid(self) -> int | None:
        """Its number in the operating system."""
        number: int | None = self._process.pid
        return number

    def await_ready(self) -> Facts:
        """Wait until it has the model. Raises what kept it from loading it."""
        try:
            (event,) = receive(self._pipe)
        except KeyboardInterrupt:
            self._process.kill()  # it would load the model to the end
            raise
        except (EOFError, OSError):
            raise ModelError(
                f"The engine's process ended while it loaded the model{self.join()}."
            ) from None
        if event.error is not None:
            self._process.join()
            raise event.error
        facts: Facts = event.value
        return facts

    def send(self, commands: Sequence[Command]) -> None:
        """Raises OSError if it is gone, and what cannot be pickled raises."""
        send(self._pipe, commands)

    def receive(self) -> list[Any]:
        """Its next events. Raises EOFError or OSError if it is gone."""
        return receive(self._pipe)

    def join(self) -> str:
        """Wait for its end; how it ended, to follow "the process ended"."""
        self._process.join()
        code = self._process.exitcode
        if code is None or code == 0:
            return ""
        return f" with signal {-code}" if code < 0 else f" with exit code {code}"

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self._process.is_alive():
            self._process.kill()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()
