"""Types of answers as DuckDB types, JSON Schema and Pydantic classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.types.given import output_of
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Part, StructOf

MOOD = Leaf("ENUM('happy', 'sad')", ("happy", "sad"))


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(Database.open(":memory:")) as opened:
        opened.execute("CREATE TYPE mood AS ENUM ('happy', 'sad')")
        yield opened


def test_a_duckdb_type_has_a_shape(database: Database) -> None:
    for text, shape in [
        ("INTEGER", Leaf("INTEGER")),
        ("int", Leaf("INTEGER")),
        ("VARCHAR[]", ListOf(Leaf("VARCHAR"))),
        ("DOUBLE[3]", ListOf(Leaf("DOUBLE"), 3)),
        ("mood", MOOD),
        ("VARCHAR(20)", Leaf("VARCHAR", length=20)),
        (
            "name VARCHAR, amount DECIMAL(10,2)",
            StructOf((Part("name", Leaf("VARCHAR")), Part("amount", Leaf("DECIMAL(10,2)")))),
        ),
        ("STRUCT(a DATE)", StructOf((Part("a", Leaf("DATE")),))),
        (
            "a VARCHAR(5)[] NOT NULL",
            StructOf((Part("a", ListOf(Leaf("VARCHAR", length=5)), required=True),)),
        ),
        (
            '"odd name" STRUCT(m mood NOT NULL)',
            StructOf((Part("odd name", StructOf((Part("m", MOOD, required=True),))),)),
        ),
        ("s ENUM('x', 'y')", StructOf((Part("s", Leaf("ENUM('x', 'y')", ("x", "y"))),))),
    ]:  # fmt: skip
        assert output_of(text, database).shape == shape


def test_what_is_no_type_is_refused(database: Database) -> None:
    for text, message in [
        ("name", "is not a type"),
        ("name VARCHAR age", "is not a type"),
        ("", "is not a type"),
        ("a nothing", "is not a type"),
        ("a INTEGER, A VARCHAR", "two fields named"),
        ("MAP(VARCHAR, INTEGER)", "cannot have the type"),
        ("b BLOB", "cannot have the type BLOB"),
        ("a INTEGER); DROP TABLE t; --", "is not a type"),
    ]:
        with pytest.raises(QueryError, match=message):
            output_of(text, database)


def test_a_json_schema_has_a_shape(database: Database) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "who wrote it"},
            "kind": {"enum": ["a", "b"]},
            "score": {"type": ["number", "null"]},
            "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "next": {"$ref": "#/$defs/Next"},
        },
        "required": ["name", "kind", "score", "next"],
        "$defs": {"Next": {"type": "array", "items": {"type": "integer"}}},
    }
    assert output_of(schema, database).shape == StructOf(
        (
            Part("name", Leaf("VARCHAR"), required=True, about="who wrote it"),
            Part("kind", Leaf("VARCHAR", ("a", "b")), required=True),
            Part("score", Leaf("DOUBLE")),
            Part("day", Leaf("DATE")),
            Part("next", ListOf(Leaf("BIGINT")), required=True),
        )
    )


def test_a_schema_that_sql_cannot_hold_is_refused(database: Database) -> None:
    for schema, message in [
        ('{"type": "object"', "not valid JSON"),
        ('{"type": "object", "properties": {}}', "no fields"),
        ('{"type": "object", "properties": {"a": {}}}', "has no type"),
        ('{"type": "object", "properties": {"a": {"type": "number", "multipleOf": 3}}}', "'mult"),
        ('{"anyOf": [{"type": "string"}, {"type": "integer"}]}', "several types"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/none"}}}', "does not define"),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', "refers to itself"),
        (3, "is int"),
    ]:
        with pytest.raises(QueryError, match=message):
            output_of(schema, database)


def test_a_schema_may_allow_null(database: Database) -> None:
    for schema, nullable in [
        ('{"type": ["integer", "null"]}', True),
        ('{"anyOf": [{"type": "string"}, {"type": "null"}]}', True),
        ('{"enum": ["a", null]}', True),
        ('{"type": "integer"}', False),
        ('{"type": "object", "properties": {"a": {"type": ["integer", "null"]}}}', False),
    ]:
        assert output_of(schema, database).nullable is nullable


def test_a_class_with_a_schema_is_a_type(database: Database) -> None:
    class Person:
        @classmethod
        def model_json_schema(cls) -> dict[str, object]:
            return {
                "type": "object",
                "properties": {"age": {"type": "integer"}},
                "required": ["age"],
            }

    assert output_of(Person, database).shape == StructOf(
        (Part("age", Leaf("BIGINT"), required=True),)
    )
