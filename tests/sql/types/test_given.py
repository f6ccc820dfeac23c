"""Types of answers as DuckDB types, JSON Schema and Pydantic classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import IntEnum

import pytest

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.types.given import output_of
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, StructField, StructOf
from tests.cases import values

MOOD = Leaf("ENUM('happy', 'sad')", ("happy", "sad"))


@pytest.fixture
def database() -> Iterator[Database]:
    with closing(Database.open(":memory:")) as opened:
        opened.execute("CREATE TYPE mood AS ENUM ('happy', 'sad')")
        yield opened


def test_a_duckdb_type_has_a_shape(database: Database) -> None:
    for text, shape in values(__file__, "types.txt", **globals()):
        assert output_of(text, database).shape == shape


def test_what_is_no_type_is_refused(database: Database) -> None:
    for text, message in values(__file__, "types_refused.txt"):
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
            StructField("name", Leaf("VARCHAR"), required=True, about="who wrote it"),
            StructField("kind", Leaf("VARCHAR", ("a", "b")), required=True),
            StructField("score", Leaf("DOUBLE")),
            StructField("day", Leaf("DATE")),
            StructField("next", ListOf(Leaf("BIGINT")), required=True),
        )
    )


def test_a_value_in_a_json_schema_has_a_type(database: Database) -> None:
    for schema, leaf in values(__file__, "schemas.txt", Leaf=Leaf):
        assert output_of(schema, database).shape == leaf, schema


def test_a_schema_that_sql_cannot_hold_is_refused(database: Database) -> None:
    for schema, message in values(__file__, "schemas_refused.txt"):
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

    class Stars(IntEnum):
        FEW = 1
        MANY = 5

    assert output_of(Person, database).shape == StructOf(
        (StructField("age", Leaf("BIGINT"), required=True),)
    )
    assert output_of(Stars, database).shape == Leaf("BIGINT", ("1", "5"))
