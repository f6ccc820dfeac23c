"""Answers of the embedded engine under a schema are valid JSON, whatever the schema and weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from random import Random
from unittest.mock import patch

import jsonschema
import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.backends.schemas import closed
from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.schemas import STRUCT, as_text, bounded

MODEL = "random:layers=2,hidden=64,heads=2,context=2048"


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend(MODEL, cache_tokens=4096)) as backend:
        yield backend


def ask(backend: EmbeddedBackend, schema: str, count: int = 3, **sampling: object) -> list[Answer]:
    settings = Sampling(**{"max_tokens": 1500, "schema": schema, **sampling})  # type: ignore[arg-type]
    answers = dict(backend.answer([(Span(f"Row {n}."),) for n in range(count)], settings))
    return [answers[index] for index in range(count)]


def check(answer: Answer, schema: str) -> None:
    """Its text is JSON of the closed schema, with keys in order and no spaces."""
    assert (answer.finish, answer.error) == (Finish.STOP, None)
    assert answer.text is not None
    value = json.loads(answer.text)
    jsonschema.validate(value, closed(schema))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_an_answer_whose_type_bounds_its_length_is_valid(seed: int) -> None:
    rng = Random(seed)
    with closing(load_backend(f"{MODEL},seed={seed}", cache_tokens=4096)) as backend:
        for number in range(3):
            schema = as_text(bounded(rng))
            for temperature in 0.0, 1.3:
                for answer in ask(backend, schema, temperature=temperature, seed=number):
                    check(answer, schema)


def test_answers_do_not_depend_on_what_else_is_asked(backend: EmbeddedBackend) -> None:
    alone = [answer.text for answer in ask(backend, STRUCT, 5)]
    other = backend.answer([(Span("Say more."),)] * 3, Sampling(max_tokens=60))
    assert [answer.text for answer in ask(backend, STRUCT, 5)] == alone
    assert len(list(other)) == 3


def test_forced_tokens_save_forward_passes(backend: EmbeddedBackend) -> None:
    schema = '{"type": "object", "properties": {"is_positive": {"type": "boolean"}}}'
    executor = backend._executor
    with (
        patch.object(executor, "execute", wraps=executor.execute) as planned,
        patch.object(executor, "follow", wraps=executor.follow) as followed,
    ):
        (answer,) = ask(backend, schema, 1)
    assert answer.text in ('{"is_positive":true}', '{"is_positive":false}')
    assert answer.output_tokens == len(answer.text)  # one for each byte
    assert (planned.call_count, followed.call_count) == (1, 0)


def test_an_answer_that_is_too_long_is_cut_with_an_error(backend: EmbeddedBackend) -> None:
    (answer,) = ask(backend, STRUCT, 1, max_tokens=12)
    assert (answer.text or "").startswith('{"name":"')
    assert answer.finish is Finish.LENGTH
    assert "Raise max_tokens" in (answer.error or "")


def test_a_schema_that_cannot_be_followed_is_refused_at_once(backend: EmbeddedBackend) -> None:
    sampling = Sampling(schema='{"type": "array", "uniqueItems": true}')
    for act in (
        lambda: backend.check(sampling),
        lambda: backend.answer([(Span("x"),)], sampling),
        lambda: backend.prompt_tokens([(Span("x"),)], sampling),
    ):
        with pytest.raises(ConfigError, match="uniqueItems"):
            act()
    assert not backend.engine.waiting
    backend.check(Sampling(schema=STRUCT))
