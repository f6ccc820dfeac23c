"""A relQuery in the engine: the requests of one call, one job with one latency."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.engine.request.queue import Queue
from relquery.engine.request.request import Request


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a relQuery's arrival to its last answer, in three parts (paper 003, eq. 2).

    waiting: until the step begins that computes its first prompt. core: until the step ends that
    computes its last prompt. tail: until its last answer.
    """

    waiting: float
    core: float
    tail: float

    @property
    def total(self) -> float:
        """The sum of all three parts."""
        return self.waiting + self.core + self.tail


@dataclass(slots=True, eq=False, weakref_slot=True)
class RelQuery:
    """Requests that belong together. Only the engine's loop changes it.

    arrival: of the first request, in seconds on the engine's clock. tenant: the client. name: that
    the client gave it, if any. size: number of submitted requests. refused: requests that came and
    could not be served. rows: requests that will come in all, if the client said. deadline: on the
    engine's clock, when its open requests end without an answer. prompt_tokens: of all submitted
    requests. output_limit: the most tokens that an answer may have. allowed_tokens: the sum of
    max_tokens over the submitted requests. waiting, running: the open requests. answered: requests
    that ended with an answer. answered_tokens: tokens of their answers.
    computed_prompts: prompt tokens computed so far, without those served from the cache.
    drawn_tokens: answer tokens drawn so far.
    started: when the first step with one of its requests began. prefilled: when the last step that
    computed a prompt ended. ended: when its last request ended; None while one is open.
    """

    id: int
    arrival: float
    tenant: str = ""
    name: str | None = None
    size: int = 0
    refused: int = 0
    rows: int | None = None
    deadline: float | None = None
    prompt_tokens: int = 0
    output_limit: int = 0
    allowed_tokens: int = 0
    waiting: Queue = field(default_factory=Queue)
    running: dict[Request, None] = field(default_factory=dict)
    answered: int = 0
    answered_tokens: int = 0
    computed_prompts: int = 0
    drawn_tokens: int = 0
    started: float | None = None
    prefilled: float | None = None
    ended: float | None = None

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + len(self.running)

    @property
    def expected(self) -> int:
        """Declared rows that have not come yet."""
        return 0 if self.rows is None else max(0, self.rows - self.size - self.refused)

    @property
    def mean_prompt(self) -> float:
        """Tokens of a prompt, the mean of those that have come."""
        return self.prompt_tokens / self.size if self.size else 0.0

    @property
    def mean_limit(self) -> float:
        """Mean max_tokens of the submitted requests."""
        return self.allowed_tokens / self.size if self.size else 0.0

    @property
    def latency(self) -> Latency | None:
        """Its latency; None before it ends, or if it ended without being started."""
        if self.started is None or self.ended is None:
            return None
        computed = self.ended if self.prefilled is None else self.prefilled
        return Latency(self.started - self.arrival, computed - self.started, self.ended - computed)
