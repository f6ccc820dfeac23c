"""Typed answers: their JSON Schema, and what is read as a value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import (
    InvalidAnswerError,
    ListOf,
    Output,
    Shape,
    StructField,
    StructOf,
    described,
)
from tests.cases import values

PERSON = StructOf(
    (
        StructField("name", Leaf("VARCHAR"), required=True),
        StructField("age", Leaf("INTEGER")),
        StructField("tags", ListOf(Leaf("VARCHAR")), required=True),
    )
)


def test_a_struct_is_an_object_whose_keys_are_all_required() -> None:
    assert json.loads(Output(PERSON).schema) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {
                "anyOf": [
                    {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
                    {"type": "null"},
                ]
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }


def test_what_is_no_struct_is_the_answer_of_an_object() -> None:
    assert json.loads(Output(Leaf("BOOLEAN")).schema)["properties"] == {
        "answer": {"type": "boolean"}
    }


def test_an_answer_is_read_with_its_structure() -> None:
    for text in [
        '{"name": "Ann", "age": 3, "tags": ["a"]}',
        '```json\n{"name": "Ann", "age": 3, "tags": ["a"]}\n```',
        '{"NAME": "Ann", "age": 3.0, "tags": ["a"], "more": 1}',
    ]:
        assert Output(PERSON).read(text) == {"name": "Ann", "age": "3", "tags": ["a"]}


def test_a_field_that_may_be_null_may_also_be_missing() -> None:
    assert Output(PERSON).read('{"name": "Ann", "tags": []}')["age"] is None


def test_what_is_no_value_says_why() -> None:
    for text, reason in values(__file__, "no_values.txt"):
        with pytest.raises(InvalidAnswerError, match=reason):
            Output(PERSON).read(text)


def test_a_list_of_fixed_size_has_that_many_items() -> None:
    pair = Output(ListOf(Leaf("INTEGER"), 2))
    assert pair.read('{"answer": [1, 2]}') == ["1", "2"]
    with pytest.raises(InvalidAnswerError, match="a list of 2 items"):
        pair.read('{"answer": [1]}')


def test_distinct_items_are_kept_once_in_their_order() -> None:
    labels = Output(ListOf(Leaf("VARCHAR", ("a", "b")), distinct=True))
    assert labels.read('["b", "a", "b"]') == ["b", "a"]


def test_a_value_may_stand_without_the_object_around_it() -> None:
    assert Output(Leaf("INTEGER")).read("12") == "12"


@pytest.mark.parametrize("shape", [Leaf("INTEGER"), ListOf(Leaf("DATE")), PERSON])
def test_a_whole_answer_may_be_null(shape: Shape) -> None:
    nullable = Output(shape, nullable=True)
    assert json.loads(nullable.schema)["properties"]["answer"]["anyOf"][1] == {"type": "null"}
    assert nullable.read('{"answer": null}') is None
    assert nullable.read("null") is None
    with pytest.raises(InvalidAnswerError):
        Output(shape).read("null")


def test_a_struct_that_may_be_null_is_inside_of_an_object() -> None:
    person: dict[str, Any] = {"name": "Ada", "age": None, "tags": []}
    nullable = Output(PERSON, nullable=True)
    assert nullable.read(json.dumps({"answer": person})) == person
    assert nullable.read(json.dumps(person)) == person


def test_the_type_is_told_in_words() -> None:
    assert described(PERSON) == (
        '{"name": VARCHAR, "age": INTEGER or null, "tags": a list of VARCHAR}'
    )
