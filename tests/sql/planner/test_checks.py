"""A cast of answers gives what DuckDB's TRY_CAST gives, and a row error where that is NULL.

A list, struct or map with a part that is no value is NULL as a whole.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.errors import PartialResultWarning
from tests.sql.fakes import FakeBackend

NUMBERS = [
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "BIGNUM", "DECIMAL", "DECIMAL(4, 1)", "DECIMAL(18, 2)",
    "DECIMAL(38, 10)", "FLOAT", "DOUBLE",
]  # fmt: skip
ANY_TEXT = ["BLOB", "VARIANT", "UNION(a INTEGER, b VARCHAR)"]
OTHERS = [
    "BOOLEAN", "DATE", "TIME", "TIME_NS", "TIMETZ", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL", "UUID", "BIT", "JSON", "ENUM('good', 'bad')",
]  # fmt: skip
NESTED = [
    "INTEGER[]",
    "VARCHAR[]",
    "INTEGER[2]",
    "STRUCT(a INTEGER, b DATE)",
    "MAP(VARCHAR, INTEGER)",
]
TYPES = [*NUMBERS, *ANY_TEXT, *OTHERS, *NESTED]
OFTEN = {"TINYINT", "DECIMAL(18, 2)", "DOUBLE", "BLOB", "DATE", "JSON", "STRUCT(a INTEGER, b DATE)"}
DECIMAL_NOTATION = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHITE_SPACE = " \t\n\r\f\v"
FENCED = re.compile(r"\s*```(?:[\w+-]*\n)?([^`]+)```\s*", re.ASCII)

_rng = random.Random(13)
TEXTS = [
    "4", " 7 ", "\n7\t", "4.0", "4.5", "-4.5", "1e3", "1E-2", ".5", "5.", "+3", "-0", "007",
    "12,000", "1_000", "0x1F", "NaN", "inf", "-Infinity", "1e400", "1e39", "4 stars", "4/5", "four",
    "9007199254740993", "-9223372036854775808", "9223372036854775808", "18446744073709551615",
    "170141183460469231731687303715884105727", "340282366920938463463374607431768211455",
    "9007199254740993.25", "0.1", "", " ", "null", "NULL", "N/A", "true", " TRUE", "yes", "No", "t",
    "2024-02-29", " 2024-02-29\n", "2023-02-29", "2024-1-5", "29.02.2024", "infinity", "epoch",
    "12:30", " 12:30:01.5 ", "25:00", "2024-02-29 12:30:00", "2024-02-29T12:30:00Z",
    "2024-02-29 12:30:00+02", "3 days", "1 year 2 months", "soon",
    "00000000-0000-0000-0000-000000000001", " 00000000-0000-0000-0000-000000000001 ", "101", " 01",
    '{"a": 1}', ' {"a": 1, "b": "2024-01-01"}', "{'a': 1, 'b': 2024-01-01}", "{a: x}", '"x"', "[1]",
    "[1, 2]", " [1,2] ", "[1, x]", "{x=1}", "{x: 1, y: 2}", "good", " bad\n", "Good", "\\x41", "é",
    "```\n42\n```", " ```text\n 2024-02-29\n```\n", '```json\n{"a": 1}\n```', "```42```", "``````",
    "```\n\n```", "It is ```42```", "```\n4\n```\n```\n5\n```", "~~~\n42\n~~~", "`42`",
    *(str(_rng.randrange(-(10**digits), 10**digits)) for digits in range(1, 40)),
    *(f"{_rng.randrange(10**d)}.{_rng.randrange(10**6)}" for d in range(1, 20)),
]  # fmt: skip


def read(texts: Sequence[str], kind: str) -> list[tuple[str | None, bool]]:
    """(the answer cast to the type, as text; whether its row has an error), for each answer."""
    answers = dict(enumerate(texts))
    with connect(FakeBackend(lambda query, row: answers[row["id"]]), ledger=None) as con:
        con.register("t", {"id": list(answers)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)
            cast = f"CAST(LLM('?', id)::{kind} AS VARCHAR)"
            result = con.sql(f"SELECT {cast} FROM t ORDER BY id")
            con.sql(f"CREATE TABLE answers AS SELECT LLM('?', id)::{kind} AS a FROM t")
        (described,) = con.sql("DESCRIBE answers").fetchall()
        assert described[1] == con.sql(f"DESCRIBE SELECT NULL::{kind}").fetchall()[0][1]
    failed = {error.row for error in result.errors}
    return [(row[0], at in failed) for at, row in enumerate(result.fetchall())]


def reference(text: str, kind: str, plain: duckdb.DuckDBPyConnection) -> str | None:
    """What the rule says, by plain DuckDB."""
    if kind not in ANY_TEXT:
        fenced = FENCED.fullmatch(text)
        text = (fenced[1] if fenced else text).strip(WHITE_SPACE)
    if kind in NUMBERS and not DECIMAL_NOTATION.fullmatch(text):
        return None
    # TRY_CAST turns parts of a list or struct that are no values into NULL; a cast refuses them.
    cast = f"TRY(CAST(? AS {kind}))" if kind in NESTED else f"TRY_CAST(? AS {kind})"
    ((value,),) = plain.execute(f"SELECT CAST({cast} AS VARCHAR)", [text]).fetchall()
    return None if kind in ("FLOAT", "DOUBLE") and value in ("inf", "-inf") else value


@pytest.mark.parametrize(
    "kind",
    [kind if kind in OFTEN else pytest.param(kind, marks=pytest.mark.long) for kind in TYPES],
)
def test_an_answer_is_what_duckdb_makes_of_its_text(
    kind: str, plain: duckdb.DuckDBPyConnection
) -> None:
    wanted = [reference(text, kind, plain) for text in TEXTS]
    got = read(TEXTS, kind)
    assert got == [(value, value is None) for value in wanted]
    assert any(value is not None for value in wanted), "no text is a value of this type"


@pytest.mark.long
@given(
    st.sampled_from(TYPES),
    st.lists(
        st.text("0123456789+-.eE _", max_size=24)
        | st.decimals(allow_nan=False, places=3).map(str)
        | st.integers().map(str)
        | st.floats().map(str)
        | st.dates().map(str)
        | st.datetimes().map(str)
        | st.uuids().map(str)
        | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
        max_size=6,
    ),
)
def test_any_text_is_what_duckdb_makes_of_it(
    plain: duckdb.DuckDBPyConnection, kind: str, texts: list[str]
) -> None:
    wanted = [reference(text, kind, plain) for text in texts]
    assert read(texts, kind) == [(value, value is None) for value in wanted]


@pytest.mark.parametrize("kind", ["HUGEINT", pytest.param("BIGNUM", marks=pytest.mark.long)])
def test_no_digit_is_lost(kind: str) -> None:
    ((value, failed),) = read(["9007199254740993"], kind)
    assert str(value).removesuffix(".00") == "9007199254740993"
    assert not failed
