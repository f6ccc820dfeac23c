"""Hosts of an engine's loop, as its callers see them: in their own thread, in one of its
own, or in another process.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, overload

from relquery.backends.local.asking import Piece
from relquery.engine.executor import Clock
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer, Prompt, Sampling
from relquery.tools import HERMES, CallForm

T = TypeVar("T")
TICK = 0.25  # seconds that a wait lasts at most: on Windows Ctrl-C is heard only between waits
CLOSED = "The engine is closed. Open another one: relquery.Engine(model)."


class Sink(Protocol):
    """The receiver of a job's answers. The engine's thread calls it, in this order; it must not
    wait, and raises nothing."""

    def piece(self, index: int, piece: Piece) -> None:
        """A part of an answer has been drawn; only for jobs that are streamed."""

    def add(self, index: int, answer: Answer) -> None:
        """An answer has come."""

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """No more answers come. error: what broke the job."""


class Packed(Sequence[Prompt]):
    """Prompts for another process. Those who pass them on have bytes, which they need not read."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._size = len(prompts)
        self._content: bytes | list[Prompt] = pickle.dumps(list(prompts), pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        content = self._content
        if isinstance(content, bytes):
            content = self._content = list(pickle.loads(content))
        return content[index]


@dataclass(frozen=True, slots=True)
class Submission:
    """Prompts that are asked as one relQuery, and how; see Engine.submit and Engine.score."""

    prompts: Sequence[Prompt]
    sampling: Sampling
    tenant: str = ""
    scored: Normalization | None = None
    streamed: bool = False
    declared: Declared | None = None
    """What the client says about the relQuery; None for nothing."""
    adapter: str = ""
    """By name, "" for the engine's usual one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Constants of an open engine's model; see Limits."""

    name: str
    context: int
    cache_tokens: int
    block_tokens: int
    policy: str
    """Its name."""
    calls: CallForm = HERMES
    """How the model writes calls of tools."""


class EngineControl(Protocol):
    """Commands to an engine between two steps. Each waits for the step that runs."""

    def cancel(self, sink: Sink) -> bool:
        """End what is open of a job; False if nothing is."""

    def ask(self, question: str, *given: Any) -> Any:
        """What the engine tells; see QUESTIONS. Raises what the question raises, and ConfigError if
        the engine is closed."""


class EngineHost(EngineControl, Protocol):
    """The place where an engine runs: EmbeddedBackend in the thread of who asks, Worker in a thread
    that any other may ask, Link in another process."""

    @property
    def clock(self) -> Clock:
        """The engine's."""

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """Queue a job; its answers go to the sink. Returns at once; False if it is closed."""

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """The next thing that comes into a queue which the engine fills.

        until: on the clock, when to give up with a TimeoutError. Raises ConfigError if the engine
        has stopped without it.
        """


def heard(
    bell: SimpleQueue[T], until: float | None, clock: Clock, is_alive: Callable[[], bool]
) -> T:
    """The next thing that a thread puts in; see EngineHost.hear. is_alive: whether it runs."""
    while True:
        alive = is_alive()  # before the wait: afterwards it puts nothing in
        left = TICK if until is None else min(TICK, max(0.0, until - clock.now()))
        try:
            return bell.get(timeout=left)
        except Empty:
            if not alive:
                raise ConfigError("The engine has stopped. Open another one.") from None
            if until is not None and clock.now() >= until:
                raise TimeoutError from None
