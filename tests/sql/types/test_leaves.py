"""Single values of typed answers are read as DuckDB reads them, digit by digit."""

from __future__ import annotations

import datetime
import itertools
import json
import re
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.sql.types.leaves import Leaf, Number, dumped
from tests.cases import values


def read(kind: str, text: str, **more: Any) -> str | None:
    value = json.loads(text, parse_int=Number, parse_float=Number)
    return Leaf(kind, **more).read(value)


def test_a_value_keeps_its_digits_or_is_no_value() -> None:
    for kind, text, expected in values(__file__, "leaves.txt"):
        assert read(kind, text) == expected


def test_a_text_has_at_most_its_length() -> None:
    assert read("VARCHAR", '"abc"', length=3) == "abc"
    assert read("VARCHAR", '"abcd"', length=3) is None
    assert read("VARCHAR", '"a"', shortest=2) is None


def test_a_text_is_one_of_the_values() -> None:
    assert read("ENUM('a', 'b')", '"b"', values=("a", "b")) == "b"
    assert read("ENUM('a', 'b')", '"B"', values=("a", "b")) is None


def test_a_number_is_one_of_the_values() -> None:
    assert Leaf("BIGINT", ("1", "2")).schema == {"type": "integer", "enum": [1, 2]}
    for text, value in [("2", "2"), ('"2"', "2"), ("2.0", "2"), ("3", None), ('"b"', None)]:
        assert read("BIGINT", text, values=("1", "2")) == value


def test_half_a_character_becomes_a_question_mark() -> None:
    assert read("VARCHAR", '"\\ud800"') == "\ufffd"


def test_json_is_written_as_it_was_read() -> None:
    text = '{"a":1.2300,"b":[true,null,"é"],"c":123456789012345678901234567890}'
    assert dumped(json.loads(text, parse_int=Number, parse_float=Number)) == text


def test_a_number_of_many_digits_is_written_as_text_of_bounded_length() -> None:
    for kind, valid, invalid in values(__file__, "long_numbers.txt"):
        schema = Leaf(kind).schema
        assert schema["type"] == "string"
        for text in valid:
            assert re.fullmatch(schema["pattern"], text)
            assert Leaf(kind).read(text) is not None
        for text in invalid:
            assert not re.fullmatch(schema["pattern"], text)


def test_a_number_is_within_its_bounds() -> None:
    assert Leaf("INTEGER", least=1, most=3).schema == {
        "type": "integer",
        "minimum": 1,
        "maximum": 3,
    }
    assert read("INTEGER", "3", least=1, most=3) == "3"
    assert read("DOUBLE", "3.5", most=3) is None


@pytest.mark.parametrize("kind", ["BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"])
def test_the_pattern_of_a_large_integer_is_short_and_takes_all_values_of_the_type(
    kind: str,
) -> None:
    bits = 128 if "HUGEINT" in kind else 64
    least, most = (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    written = Leaf(kind).schema["pattern"]
    assert len(written) < 60
    for number in (least, most, 0, 1, most // 7, most - 10 ** (len(str(most)) - 1)):
        assert re.fullmatch(written, str(number))
        assert Leaf(kind).read(str(number)) == str(number)
    for number in (least - most, 2 * most, 10 * most, "", "01", "1.0", "1e3"):
        assert not re.fullmatch(written, str(number))
    assert Leaf(kind).read(str(most + 1)) is None


@given(st.integers(1, 38), st.data())
def test_a_decimal_is_rounded_as_duckdb_casts_it(
    plain: duckdb.DuckDBPyConnection, width: int, data: st.DataObject
) -> None:
    scale = data.draw(st.integers(0, width))
    text = data.draw(
        st.from_regex(rf"-?[0-9]{{1,{width}}}(\.[0-9]{{1,{scale + 3}}})?", fullmatch=True)
    )
    kind = f"DECIMAL({width},{scale})"
    cast = f"SELECT TRY_CAST($1 AS {kind}), TRY_CAST($2 AS {kind})"
    wanted, read = plain.execute(cast, [text, Leaf(kind).read(text)]).fetchone() or ()
    assert read == wanted


def test_a_text_has_its_format() -> None:
    for name, text, has in values(__file__, "formats.txt"):
        assert (read("VARCHAR", json.dumps(text), format=name) == text) is has, (name, text)
    assert Leaf("VARCHAR", format="email").schema == {"type": "string", "format": "email"}
    assert Leaf("VARCHAR", format="uri").schema == {"type": "string"}


def test_a_pattern_takes_the_days_that_exist() -> None:
    pattern = re.compile(Leaf("DATE").schema["pattern"])
    for year in (100, 400, 1600, 1700, 1900, 1996, 2000, 2023, 2024, 2100, 9999):
        for month, day in itertools.product(range(14), range(33)):
            text = f"{year:04}-{month:02}-{day:02}"
            try:
                exists = bool(datetime.date.fromisoformat(text))
            except ValueError:
                exists = False
            assert (pattern.fullmatch(text) is not None) == exists, text
