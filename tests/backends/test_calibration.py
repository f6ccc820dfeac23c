"""Probabilities of labels corrected: priors divided out, temperatures fitted to right answers."""

from __future__ import annotations

from math import exp, fsum, inf, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relquery
from relquery.backends.scoring import Scores, corrected, fit_temperature, mean, normalized
from relquery.errors import ConfigError

SHARES = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=5)


def logs_of(**shares: float) -> dict[str, float]:
    return normalized({label: log(share) for label, share in shares.items()})


def shares_of(logs: dict[str, float]) -> dict[str, float]:
    return {label: exp(each) for label, each in logs.items()}


@given(SHARES, st.floats(0.05, 20))
def test_what_is_corrected_keeps_its_order(shares: list[float], temperature: float) -> None:
    logs = {str(i): log(share) for i, share in enumerate(shares)}
    found = corrected(logs, None, temperature)
    assert fsum(shares_of(found).values()) == pytest.approx(1)
    assert max(found, key=found.__getitem__) == max(logs, key=logs.__getitem__)


@given(SHARES)
def test_what_equals_its_prior_becomes_uniform(shares: list[float]) -> None:
    logs = {str(i): log(share) for i, share in enumerate(shares)}
    uniform = [-log(len(logs))] * len(logs)
    assert list(corrected(logs, logs).values()) == pytest.approx(uniform)


def test_a_prior_is_divided_out_as_bayes_has_it_and_a_temperature_scales_the_rest() -> None:
    found = corrected(logs_of(Yes=0.6, No=0.4), logs_of(Yes=0.9, No=0.1))
    assert shares_of(found)["No"] == pytest.approx((0.4 / 0.1) / (0.4 / 0.1 + 0.6 / 0.9))
    found = corrected(logs_of(Yes=0.8, No=0.2), logs_of(Yes=0.5, No=0.5), 2.0)
    assert found["Yes"] - found["No"] == pytest.approx(log(4) / 2)


def test_a_label_without_probability_keeps_none_and_the_coldest_leaves_the_likeliest() -> None:
    logs = {"a": log(0.6), "b": log(0.4)}
    assert corrected(logs, None, 5e-324) == {"a": 0.0, "b": -inf}
    found = corrected({"a": -inf, "b": log(0.5), "c": log(0.5)}, None, 3.0)
    assert shares_of(found) == pytest.approx({"a": 0.0, "b": 0.5, "c": 0.5})


def test_several_content_free_prompts_give_the_mean_of_their_probabilities() -> None:
    found = mean([logs_of(a=0.9, b=0.1), logs_of(a=0.5, b=0.5)])
    assert shares_of(found) == pytest.approx({"a": 0.7, "b": 0.3})
    assert mean([{"a": -inf, "b": 0.0}])["a"] == -inf


def drawn(temperature: float, count: int, seed: int = 0) -> tuple[list[Scores], list[str]]:
    """Scores, and answers drawn from what these say at a temperature."""
    rng = np.random.default_rng(seed)
    scores, answers = [], []
    for _ in range(count):
        logs = normalized(dict(zip("abc", (rng.normal(size=3) * 4).tolist(), strict=True)))
        shares = [exp(each) for each in corrected(logs, None, temperature).values()]
        scores.append(Scores(logs))
        answers.append("abc"[rng.choice(3, p=np.array(shares) / fsum(shares))])
    return scores, answers


@pytest.mark.parametrize(
    "temperature", [0.5, 2.0, *(pytest.param(each, marks=pytest.mark.long) for each in (1.0, 6.0))]
)
def test_the_temperature_that_answers_were_drawn_with_is_found(temperature: float) -> None:
    assert fit_temperature(*drawn(temperature, 2000)) == pytest.approx(temperature, rel=0.1)


def test_a_few_prompts_without_a_mistake_ask_for_no_certainty() -> None:
    scores = [Scores(logs_of(a=0.7, b=0.3))] * 3
    assert 0.3 < fit_temperature(scores, ["a"] * 3) < 1
    assert 1 < fit_temperature(scores, ["b"] * 3) < 5


def test_prompts_with_an_error_are_left_out() -> None:
    scores, answers = drawn(2.0, 50)
    failed = Scores({}, "too long")
    assert fit_temperature([*scores, failed], [*answers, "?"]) == fit_temperature(scores, answers)


def test_what_cannot_be_fitted_is_refused() -> None:
    half = [Scores(logs_of(Yes=0.5, No=0.5))]
    cases: list[tuple[Any, Any, str]] = [
        (half, [], "1 scores and 0 answers"),
        ([], [], "No scores to fit"),
        ([Scores({}, "too long")], ["Yes"], "No scores to fit"),
        (half, ["yes"], "Did you mean 'Yes'"),
        ([Scores({"a": -inf, "ab": 0.0})], ["a"], "another label continues it"),
        (half * 3, "aaa", "answers is 'aaa"),
        (None, ["Yes"], "scores is None"),
        (["a"], ["a"], "scores must be a list"),
        (half, [None], "The answer None is not one of the labels: 'Yes', 'No'[^?]*$"),
    ]
    for scores, answers, message in cases:
        with pytest.raises(ConfigError, match=message):
            fit_temperature(scores, answers)


def test_pairs_may_come_from_anywhere() -> None:
    scores, answers = drawn(2.0, 50)
    assert relquery.fit_temperature(iter(scores), iter(answers)) == fit_temperature(scores, answers)
    assert relquery.Scores is Scores
