"""What planning tells execution about an answer is checked where it is said."""

from dataclasses import replace
from typing import Any

import pytest

from relquery.errors import ConfigError
from relquery.prompt import Answer, Compared, Finish, Sampling

NUMBER = '{"type": "integer"}'


def test_a_schema_is_the_json_text_of_an_object() -> None:
    assert Sampling(schema=NUMBER).schema == NUMBER
    assert Compared.by(Sampling(schema=NUMBER), ("7",)).whole == Sampling(schema=NUMBER)


def test_a_schema_that_is_none_is_refused_with_what_it_must_be() -> None:
    texts = ["", "integer", "[]", "true", "{'type': 'integer'}", "[" * 100_000]
    others: list[Any] = [{"type": "integer"}, b"{}"]
    for schema in [*texts, *others]:
        with pytest.raises(ConfigError, match=r"must be the JSON text of an object.*json\.dumps"):
            Sampling(schema=schema)


def test_a_schema_that_is_none_is_shown_by_its_beginning_only() -> None:
    with pytest.raises(ConfigError) as caught:
        Sampling(schema="x" * 1_000)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("other", [{"labels": ("1", "2")}, {"stop": ("#",)}])
def test_a_schema_excludes_labels_and_stop_strings(other: dict[str, Any]) -> None:
    (name,) = other
    with pytest.raises(ConfigError, match=f"schema and {name} are both given"):
        Sampling(schema=NUMBER, **other)


def test_scores_are_of_labels_at_temperature_0() -> None:
    assert Sampling(labels=("Yes", "No"), scored=True).scored
    cases: list[tuple[dict[str, Any], str]] = [
        ({"scored": True}, "scored is given without labels"),
        ({"scored": True, "labels": ("Yes",), "temperature": 0.5}, "Leave the temperature at 0"),
        ({"scored": 1, "labels": ("Yes",)}, "must be True or False"),
    ]
    for settings, why in cases:
        with pytest.raises(ConfigError, match=why):
            Sampling(**settings)


@pytest.mark.parametrize("count", [None, 0, 1, 20])
def test_log_probabilities_are_asked_of_up_to_20_tokens(count: int | None) -> None:
    sampling = Sampling(logprobs=count)
    assert Compared.by(sampling, ("Yes",)).whole == sampling


def test_other_numbers_of_log_probabilities_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"logprobs": -1}, "logprobs is -1; it must be from 0 to 20"),
        ({"logprobs": 21}, "logprobs is 21; it must be from 0 to 20"),
        ({"logprobs": True}, "logprobs is True; it must be a number"),
        ({"logprobs": 2.0}, "logprobs is 2.0; it must be a number"),
        ({"logprobs": "5"}, "logprobs is '5'; it must be a number"),
        ({"logprobs": 0, "labels": ("Yes",), "scored": True}, "scored and logprobs are both given"),
    ]
    for settings, why in cases:
        with pytest.raises(ConfigError, match=why):
            Sampling(**settings)


def test_an_answer_that_was_asked_for_twice_has_the_tokens_of_both() -> None:
    first = Answer(None, Finish.ERROR, "no", 5, 1, 2, written_tokens=3)
    second = Answer("Yes", Finish.STOP, None, 50, 10, 20, written_tokens=30)
    whole = replace(second, prompt_tokens=55, cached_tokens=11, output_tokens=22, written_tokens=33)
    assert second.with_cost_of(first) == whole
