"""Counts of a run so far, stage by stage: numbers that it keeps anyway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relquery.prompt import Answer

Waiting = Callable[[], float]
"""Seconds until more is sent, because of a provider's limits; 0 for now."""

_HOUR, _MINUTE = 3600, 60


@dataclass(slots=True)
class Stage:
    """One stage."""

    began: float
    """The time at which it began."""
    known: int
    """Inputs that were done when it began."""
    done: int = 0
    """Inputs that are done."""
    total: int = 0
    """All inputs."""
    calls: int = 0
    """Answers that came."""
    prompt: int = 0
    """Prompt tokens of these answers."""
    cached: int = 0
    """Prompt tokens of these answers that came from a cache."""
    output: int = 0
    """Tokens of these answers."""
    errors: int = 0
    """Errors among these answers."""
    usd: float | None = None
    """The cost of these answers; None without a price."""

    def figures(self, now: float, waiting: float = 0.0) -> str:
        """`12 of 400, 12 calls, 310 tokens/s, 61% cached, 1 error, $0.02, 1:05 left`.

        waiting: seconds until more is sent; they are told from one on.
        """
        seconds = now - self.began
        parts = [of(self.done, self.total)]
        if self.calls:
            parts.append(f"{self.calls:,} {'call' if self.calls == 1 else 'calls'}")
        tokens = self.prompt + self.output
        if tokens and seconds > 0:
            parts.append(f"{tokens / seconds:,.0f} tokens/s")
        if self.prompt:
            parts.append(f"{self.cached / self.prompt:.0%} cached")
        if self.errors:
            parts.append(f"{self.errors:,} {'error' if self.errors == 1 else 'errors'}")
        if self.usd is not None:
            parts.append(f"${self.usd:,.{2 if self.usd >= 1 else 4}f}")
        if (left := self.seconds_left(now)) is not None:
            parts.append(f"{_time(left)} left")
        if waiting >= 1 and self.done < self.total:
            parts.append(f"waits {_time(waiting)} for the provider's limits")
        return ", ".join(parts)

    def seconds_left(self, now: float) -> float | None:
        """As the answers have come so far; None before the first, and at the end."""
        new = self.done - self.known
        if new <= 0 or self.done >= self.total:
            return None
        return (now - self.began) / new * (self.total - self.done)


@dataclass(slots=True)
class RunProgress:
    """All stages of a run, in the order begun."""

    clock: Callable[[], float]
    """A clock: seconds from any start."""
    waiting: Waiting | None = None
    stages: dict[str, Stage] = field(default_factory=dict)
    _now: Stage | None = None

    def advance(self, name: str, done: int, total: int) -> None:
        """Note how far a stage is."""
        stage = self.stages.get(name)
        if stage is None:
            stage = self.stages[name] = Stage(self.clock(), done)
        stage.done, stage.total = done, total
        self._now = stage

    def figures(self) -> dict[str, str]:
        """Of each stage now, by its name. Only the last one waits."""
        now, waiting = self.clock(), 0.0 if self.waiting is None else self.waiting()
        return {
            name: stage.figures(now, waiting if stage is self._now else 0.0)
            for name, stage in list(self.stages.items())
        }

    def heard(self, answer: Answer, usd: float | None = None) -> None:
        """Count an answer for the stage that was last told of. usd: what it has cost."""
        stage = self._now
        if stage is None:
            return
        stage.calls += 1
        stage.prompt += answer.prompt_tokens
        stage.cached += answer.cached_tokens
        stage.output += answer.output_tokens
        stage.errors += answer.error is not None
        if usd is not None:
            stage.usd = usd + (stage.usd or 0.0)


def of(done: int, total: int) -> str:
    """`3 of 1,200`."""
    return f"{done:,} of {total:,}"


def _time(seconds: float) -> str:
    """`1:05`, `2:00:00`."""
    whole = round(seconds)
    minutes, rest = whole // _MINUTE, whole % _MINUTE
    if whole < _HOUR:
        return f"{minutes}:{rest:02}"
    return f"{minutes // _MINUTE}:{minutes % _MINUTE:02}:{rest:02}"
