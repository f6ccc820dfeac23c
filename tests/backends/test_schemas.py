"""What the local engine answers is valid under the schema as given; else the schema is refused."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from time import perf_counter
from typing import Any

import pytest

from relquery.backends.schemas import closed, followed
from relquery.errors import ConfigError
from relquery.model.grammar import Grammar, Grammars
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Sampling
from tests.any_schemas import any_schema, problem_of
from tests.cases import cases
from tests.schemas import STRUCT

CLOSING = {ord(each) for each in '"}],'}
LONGEST = 5.0  # seconds for any schema; the slowest below takes a tenth of it


@cache
def grammars() -> Grammars:
    tokenizer = byte_tokenizer()
    return Grammars(tokenizer, len(tokenizer), {tokenizer.id_of("eos_token") or 0}, followed)


def grammar(schema: Any) -> Grammar:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return grammars().of(Sampling(schema=text).schema or "", None)


def answer(schema: Any, rng: Random, most: int = 400) -> str | None:
    """A random answer, which closes what is open now and then; None for one that does not end."""
    followed_one, end = grammar(schema), byte_tokenizer().id_of("eos_token")
    matcher = followed_one.matcher()
    output = matcher.begin(most)
    while not matcher.is_over and len(output) < most:
        allowed = matcher.allowed().tolist()
        closing = [token for token in allowed if token in CLOSING or token == end]
        token = rng.choice(closing if closing and rng.random() < 0.35 else allowed)
        if token == end:
            return followed_one.text(output)
        output += matcher.take(token)
        assert matcher.error is None
    return followed_one.text(output) if matcher.is_over else None


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 600), marks=pytest.mark.long)], ids=len
)
def test_answers_under_random_schemas_of_all_keywords_are_valid(seeds: range) -> None:
    valid = refused = 0
    for seed in seeds:
        rng = Random(seed)
        schema = json.dumps(any_schema(rng))
        try:
            grammar(schema)
        except ConfigError:
            refused += 1
            continue
        text = answer(schema, rng)
        if text is not None:
            assert (problem_of(text, schema), seed, text) == (None, seed, text)
            valid += 1
    assert valid > len(seeds) / 2, refused


@pytest.mark.parametrize("schema", cases(__file__, "once"))
def test_what_once_gave_invalid_answers_gives_valid_ones(schema: Any) -> None:
    text = json.dumps(schema)
    found = [answer(text, Random(seed)) for seed in range(20)]
    assert any(found)
    for each in filter(None, found):
        assert problem_of(each, text) is None, each


def chain(length: int) -> dict[str, Any]:
    """Each definition has the next one twice: written out, it would have 2**length parts."""
    parts = {
        f"d{at}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/d{at + 1}"} for key in "ab"},
        }
        for at in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{length}": {"type": "null"}}}


def nested(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = {"type": "array", "items": inside}
    return inside


COSTLY = "^((a{1,1000}){1,1000}){1,1000}$"
KEYS_2 = {"type": "object", "minProperties": 2, "additionalProperties": True}
LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
LONG = {
    "$ref": "#/$defs/0",
    "$defs": {str(at): nested(40, {"$ref": f"#/$defs/{at + 1}"}) for at in range(60)} | {"60": {}},
}
EITHER = {"anyOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]}
JOINED = {"allOf": [{"$ref": "#"}, {"type": "object"}]}
TWO = {"type": "object", "properties": {"a": {"type": "null"}}}


REFUSED: list[Any] = [
    *cases(__file__, "refused"),
    (TWO | {"required": ["b"], "additionalProperties": False}, "requires the key 'b'"),
    (KEYS_2, "minProperties 2"),
    (LOOP, "refers to itself"),
    ({"anyOf": [JOINED, {"type": "null"}]}, "circular references"),
    ('{"items":' * 1_000 + "{}" + "}" * 1_000, "nested 1,001 levels"),
    ({"enum": list(range(100_000))}, "the most is 120,000"),
    ({"allOf": [EITHER] * 20}, "too large"),
    (LONG, "levels deep together"),
    (chain(250), "levels deep together"),
    ('{"minimum": NaN}', "not JSON"),
    ({"type": "string", "pattern": "(" * 2_000 + ")" * 2_000}, "nested too deep"),
    ({"type": "string", "pattern": COSTLY, "minLength": 5_000}, "complex"),
]


def test_what_cannot_be_followed_is_refused_by_name_and_at_once() -> None:
    for schema, why in REFUSED:
        start = perf_counter()
        with pytest.raises(ConfigError, match=why):
            grammar(schema)
        assert perf_counter() - start < LONGEST


@pytest.mark.parametrize(
    "schema",
    [
        nested(45, {"type": "null"}),
        {"type": "object", "properties": {f"k{at}": {"type": "null"} for at in range(1_000)}},
        {"enum": [f"v{at}" for at in range(9_000)]},
        {"type": "string", "pattern": "^a{1,100000}$"},
        {"type": "string", "pattern": "^(a+)+$", "maxLength": 50},
        {"type": "integer", "multipleOf": 9973, "minimum": 0},
        chain(9),
    ],
)
def test_a_large_schema_is_read_in_limited_time(schema: Any) -> None:
    start = perf_counter()
    answer(schema, Random(0))
    assert perf_counter() - start < LONGEST


def test_an_object_has_all_its_keys_and_no_others() -> None:
    given = json.loads(STRUCT)
    keys = ["name", "age", "ok", "mood", "tags"]
    assert closed(STRUCT) == given | {"required": keys, "additionalProperties": False}
    assert list(closed(STRUCT)["properties"]) == keys


def test_objects_are_closed_wherever_they_are() -> None:
    inner = {"type": "object", "properties": {"a": {}}, "required": []}
    shut = inner | {"required": ["a"], "additionalProperties": False}
    for around in (
        lambda it: {"type": "array", "items": it},
        lambda it: {"anyOf": [it, {"type": "null"}]},
        lambda it: {"prefixItems": [it, True]},
        lambda it: {"$defs": {"it": it}, "$ref": "#/$defs/it"},
        lambda it: {"type": "object", "additionalProperties": it},
    ):
        assert closed(json.dumps(around(inner))) == around(shut)


def test_what_is_no_object_with_keys_stays_as_it_is() -> None:
    for schema in cases(__file__, "closed"):
        assert closed(json.dumps(schema)) == schema
