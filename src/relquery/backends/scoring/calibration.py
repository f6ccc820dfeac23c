"""Probabilities of labels corrected: for a bias towards some labels, and for over-confidence.

Pure functions of log-probabilities by label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, fsum, inf, log, sqrt
from typing import TypeVar

from relquery.backends.scoring.scores import Scores
from relquery.errors import ConfigError, did_you_mean

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
