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
    """One stage. done, total: inputs. known: those that were done when it began. began: when.

    calls, prompt, cached, output, errors: of the answers that came; tokens. usd: None without a
    price.
    """

    began: float
    known: int
    done: int = 0
    total: int = 0
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    errors: int = 0
    usd: float | None = None

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
    """All stages of a run, in the order begun. clock: seconds from any start."""

    clock: Callable[[], float]
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
            name: one.figures(now, waiting if one is self._now else 0.0)
            for name, one in list(self.stages.items())
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
