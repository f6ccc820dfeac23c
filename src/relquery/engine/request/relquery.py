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
        """All three."""
        return self.waiting + self.core + self.tail


@dataclass(slots=True, eq=False, weakref_slot=True)
class RelQuery:
    """Requests that were submitted as one. Only the engine's loop changes it.

    arrival: seconds on the engine's clock. tenant: who asks. size: requests submitted in all.
    output_limit: most tokens that one of them may answer. waiting, running: the open ones.
    answered: requests that ended with an answer, and answered_tokens: how many these have.
    computed_prompts: prompt tokens computed so far, those that the cache served not among them;
    drawn_tokens: of answers.
    started: when the step began that first computed one; prefilled: when the last step ended that
    computed a prompt; ended: when its last request ended.
    """

    id: int
    arrival: float
    tenant: str = ""
    size: int = 0
    output_limit: int = 0
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
    def latency(self) -> Latency | None:
        """Its latency; None before its end, and for one that ended without being begun."""
        if self.started is None or self.ended is None:
            return None
        computed = self.ended if self.prefilled is None else self.prefilled
        return Latency(self.started - self.arrival, computed - self.started, self.ended - computed)
