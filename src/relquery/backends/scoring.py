"""Probabilities of labels: prompts scored as one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import get_args

from relquery.backends.arguments import prompts_of, texts_of
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError, unknown
from relquery.prompt import Answer, Prompt, Sampling

Ask = Callable[[Sequence[Prompt], Sampling, Normalization], Sequence[Answer]]
"""Gives the answers to prompts, with the scores of all that the sampling allows."""


@dataclass(frozen=True, slots=True, repr=False)
class Scores:
    """Log-probabilities of labels as the answer to one prompt.

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


def score(
    ask: Ask,
    prompts: Iterable[str | Prompt],
    labels: Sequence[str],
    normalization: Normalization = "joint",
) -> list[Scores]:
    """How likely each label is as the answer to each prompt. See Engine.score."""
    asked, sampling = prompts_of(prompts), Sampling(labels=_labels(labels))
    if normalization not in get_args(Normalization):
        raise ConfigError(unknown("normalization", normalization, get_args(Normalization)))
    return [_scores(answer) for answer in ask(asked, sampling, normalization)]


def _scores(answer: Answer) -> Scores:
    counts = answer.prompt_tokens, answer.cached_tokens
    if answer.scores is None:
        return Scores({}, answer.error or "It was not scored.", *counts)
    return Scores(answer.scores, None, *counts)


def _labels(given: Sequence[str]) -> tuple[str, ...]:
    labels = texts_of("labels", given)
    if not labels:
        raise ConfigError("labels is empty; give at least one text, e.g. labels=['Yes', 'No'].")
    (label, count), *_ = Counter(labels).most_common(1)
    if count > 1:
        raise ConfigError(f"labels contains {label!r} {count} times; give each label once.")
    return labels
