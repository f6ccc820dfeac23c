"""What an engine offers to those who ask it, whether it runs in this process or in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from relquery.backends.service.delivery import Sink
from relquery.engine.executor import Clock
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.labels import Normalization
from relquery.prompt import Prompt, Sampling

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Submission:
    """Prompts that are asked as one relQuery, and how; see Engine.submit and Engine.score.

    declared: what the client says about the relQuery, None for nothing. adapter: by name, "" for
    the engine's usual one.
    """

    prompts: Sequence[Prompt]
    sampling: Sampling
    tenant: str = ""
    scored: Normalization | None = None
    streamed: bool = False
    declared: Declared | None = None
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What never changes about an open engine's model; see Backend for most fields.

    policy: its name.
    """

    name: str
    context: int
    cache_tokens: int
    block_tokens: int
    policy: str


class Serving(Protocol):
    """An engine that takes jobs from any thread."""

    clock: Clock
    closed: bool

    def submit(self, submission: Submission, sink: Sink) -> bool:
        """Queue a job; its answers go to the sink. Returns at once; False if it is closed."""

    def cancel(self, sink: Sink) -> bool:
        """End what is open of a job; False if nothing is. Waits for the step that runs."""

    def forecast(self, sink: Sink) -> float | None:
        """Seconds until a job's last answer; see Job.estimate. Waits for the step that runs."""

    def ask(self, question: str, *given: Any) -> Any:
        """What a method of the backend returns between two steps; one of QUESTIONS.

        Raises what the method raises, and ConfigError if the engine is closed.
        """

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        """The next thing that comes into a queue which the engine fills.

        until: on the clock, when to give up with a TimeoutError. Raises ConfigError if the engine
        has stopped without it.
        """

    def stop(self) -> None:
        """Cancel what is open and end."""
