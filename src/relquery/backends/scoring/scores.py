"""What scoring one prompt gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp


@dataclass(frozen=True, slots=True, repr=False)
class Scores:
    """How likely each label is as the answer to one prompt.

    log_probabilities: of the labels, in the order in which they were given; none where there is an
    error. error: why the prompt could not be scored, else None.
    """

    log_probabilities: Mapping[str, float] = field(default_factory=dict, hash=False)
    error: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def probabilities(self) -> dict[str, float]:
        """By label; they sum to one."""
        return {label: exp(log) for label, log in self.log_probabilities.items()}

    @property
    def best(self) -> str | None:
        """The likeliest label, of equally likely ones the first; None where there is an error."""
        logs = self.log_probabilities
        return max(logs, key=logs.__getitem__) if logs else None

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<Scores, {self.error}>"
        shown = (f"{label!r}: {share:.3f}" for label, share in self.probabilities.items())
        return f"<Scores {', '.join(shown)}>"
