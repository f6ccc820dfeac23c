"""Probabilities of labels: prompts scored as one call, corrected for bias and over-confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, inf, log, sqrt
from typing import TypeVar, get_args

from relquery.backends.arguments import prompts_of, texts_of
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError, did_you_mean, unknown
from relquery.prompt import Answer, Prompt, Sampling, Span


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


Logs = Mapping[str, float]
T = TypeVar("T")
COLDEST, HOTTEST = 0.02, 50.0
"""Between these a temperature is fitted."""
GRID = 64


def normalized(logs: Logs) -> dict[str, float]:
    """The same ratios between probabilities that sum to one."""
    most = max(logs.values())
    total = most + log(fsum(exp(each - most) for each in logs.values()))
    return {label: each - total for label, each in logs.items()}


def corrected(logs: Logs, prior: Logs | None = None, temperature: float = 1.0) -> dict[str, float]:
    """Divide out a prior, then scale: (p / prior) ** (1 / temperature), normalised to one.

    prior: log-probabilities that the labels have whatever the prompt says. Bayes' rule, or with the
    probabilities of a content-free prompt contextual calibration (Zhao et al. 2021, "Calibrate
    Before Use", who take a softmax of the ratios, which ranks the labels alike). temperature: above
    1 evens the probabilities out (Guo et al. 2017, "On Calibration of Modern Neural Networks").
    """
    if prior is not None:
        logs = {label: each - prior[label] for label, each in logs.items()}
    most = max(logs.values())  # first, so that no temperature makes all probabilities 0
    return normalized({label: (each - most) / temperature for label, each in logs.items()})


def mean(several: Sequence[Logs]) -> dict[str, float]:
    """The mean of probabilities, as logarithms."""
    return normalized({label: _log_sum([logs[label] for logs in several]) for label in several[0]})


def fit_temperature(scores: Iterable[Scores], answers: Iterable[str]) -> float:
    """The temperature under which right answers are likeliest, to be handed to `score`.

    answers: the right label of each prompt; prompts that have an error are left out. Minimises the
    negative log-likelihood between 0.02 and 50, plus log(temperature) ** 2 / 2: that settles it
    where there is little to learn from, as a few prompts without a mistake would ask for certainty.
    If the scores have a temperature already, the new one is the product of both.

    Raises ConfigError for answers that are none of the labels, and where there is nothing to fit.
    """
    given, right = _listed("scores", scores), _listed("answers", answers)
    if not all(isinstance(one, Scores) for one in given):
        raise ConfigError("scores must be a list of what Engine.score returns.")
    if len(given) != len(right):
        raise ConfigError(
            f"There are {len(given)} scores and {len(right)} answers. Give one answer for each "
            "score."
        )
    pairs = [
        (one.log_probabilities, _known(answer, one.log_probabilities))
        for one, answer in zip(given, right, strict=True)
        if one.error is None
    ]
    if not pairs:
        raise ConfigError("No scores to fit a temperature to. Give scores without errors.")

    def loss(log_temperature: float) -> float:
        scaled = [(corrected(logs, None, exp(log_temperature)), label) for logs, label in pairs]
        return log_temperature**2 / 2 - fsum(logs[label] for logs, label in scaled)

    return exp(_least(loss, log(COLDEST), log(HOTTEST)))


def _listed(name: str, given: Iterable[T]) -> list[T]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {given!r}; it must be a list.")
    return list(given)


def _known(answer: str, logs: Logs) -> str:
    if not isinstance(answer, str) or answer not in logs:
        guess = did_you_mean(answer, logs) if isinstance(answer, str) else ""
        raise ConfigError(
            f"The answer {answer!r} is not one of the labels: {', '.join(map(repr, logs))}.{guess}"
        )
    if logs[answer] == -inf:
        raise ConfigError(
            f"The answer {answer!r} has no probability at any temperature: another label continues "
            "it, and this model has no token that ends an answer. Remove it."
        )
    return answer


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is least, to three digits: on a grid, then by golden-section search."""
    width = (high - low) / GRID
    around = min((low + i * width for i in range(1, GRID)), key=function)
    low, high = around - width, around + width
    ratio = (sqrt(5) - 1) / 2
    while high - low > 1e-3:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if function(left) <= function(right) else (left, high)
    return (low + high) / 2


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most if most == -inf else most + log(fsum(exp(each - most) for each in logs))


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
