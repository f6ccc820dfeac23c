"""Prompts scored against labels: arguments checked, all asked as one call, and corrected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, log
from typing import get_args

from relquery.backends.arguments import prompts_of, texts_of
from relquery.backends.scoring.calibration import Logs, corrected, mean, normalized
from relquery.backends.scoring.scores import Scores
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError, unknown
from relquery.prompt import Answer, Prompt, Sampling, Span

Prior = str | Prompt | Sequence[str | Prompt] | Mapping[str, float]
"""What labels are worth beforehand: a content-free prompt or several, or probabilities by label."""
Ask = Callable[[Sequence[Prompt], Sampling, Normalization], Sequence[Answer]]


def score(
    ask: Ask,
    prompts: Iterable[str | Prompt],
    labels: Sequence[str],
    normalization: Normalization = "joint",
    temperature: float = 1.0,
    prior: Prior | None = None,
) -> list[Scores]:
    """How likely each label is as the answer to each prompt. See Engine.score.

    ask: gives the answers to prompts, with the scores of all that the sampling allows. A prior that
    is measured is normalised as the scores are.
    """
    asked, sampling = prompts_of(prompts), Sampling(labels=_labels(labels))
    if normalization not in get_args(Normalization):
        raise ConfigError(unknown("normalization", normalization, get_args(Normalization)))
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise ConfigError(f"temperature is {temperature!r}; it must be a number.")
    if not 0 < temperature < inf:
        raise ConfigError(f"temperature is {temperature}; it must be finite and above 0.")
    known = _known_prior(prior, sampling.labels) if isinstance(prior, Mapping) else None
    free = [] if prior is None or isinstance(prior, Mapping) else _content_free(prior)
    answers = ask([*asked, *free], sampling, normalization)
    if free:
        known = _measured_prior(answers[len(asked) :])
    return [_scores(answer, known, temperature) for answer in answers[: len(asked)]]


def _scores(answer: Answer, prior: Logs | None, temperature: float) -> Scores:
    counts = answer.prompt_tokens, answer.cached_tokens
    if answer.scores is None:
        return Scores({}, answer.error or "It was not scored.", *counts)
    return Scores(corrected(answer.scores, prior, temperature), None, *counts)


def _labels(given: Sequence[str]) -> tuple[str, ...]:
    labels = texts_of("labels", given)
    if not labels:
        raise ConfigError("labels is empty; give at least one text, e.g. labels=['Yes', 'No'].")
    (label, count), *_ = Counter(labels).most_common(1)
    if count > 1:
        raise ConfigError(f"labels contains {label!r} {count} times; give each label once.")
    return labels


def _known_prior(prior: Mapping[str, float], labels: tuple[str, ...]) -> Logs:
    if set(prior) != set(labels):
        raise ConfigError(
            f"prior has {', '.join(map(repr, prior)) or 'nothing'}; it must give a probability for "
            f"each label and nothing else: {', '.join(map(repr, labels))}."
        )
    for label, share in prior.items():
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if not (number and 0 < share < inf):
            raise ConfigError(f"The prior of {label!r} is {share!r}; it must be a number above 0.")
    return normalized({label: log(share) for label, share in prior.items()})


def _content_free(prior: str | Prompt | Sequence[str | Prompt]) -> list[Prompt]:
    """One prompt or several: a tuple of Spans is one."""
    one = isinstance(prior, str) or (
        isinstance(prior, tuple) and all(isinstance(part, Span) for part in prior)
    )
    found = prompts_of([prior] if one else prior, "prior")  # type: ignore[list-item, arg-type]
    if not found:
        raise ConfigError("prior is an empty list; give a prompt without content, or None.")
    return found


def _measured_prior(answers: Sequence[Answer]) -> Logs:
    for number, answer in enumerate(answers):
        if answer.scores is None:
            raise ConfigError(f"Prompt {number} of prior cannot be scored: {answer.error}")
    prior = mean([answer.scores for answer in answers if answer.scores is not None])
    for label, share in prior.items():
        if share == -inf:
            raise ConfigError(
                f"The prior of {label!r} is 0 because another label continues it, and this model "
                "has no token that ends an answer. Remove one of them."
            )
    return prior
