"""Encoding: codes, distinct values and lengths say all that the table says."""

from __future__ import annotations

import datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from relquery.errors import TableError
from relquery.table.columns import Columns, encode
from tests.table.reference import Rows, Table
from tests.table.strategies import columns_of, tables


def decode(columns: Columns) -> Rows:
    values = [distinct.to_pylist() for distinct in columns.values]
    return [
        [values[column][code] for column, code in enumerate(row)] for row in columns.codes.tolist()
    ]


@given(tables())
def test_codes_and_values_give_the_table_back(table: Table) -> None:
    assert decode(columns_of(table)) == table.cells


@given(tables())
def test_codes_count_up_in_the_order_of_first_appearance(table: Table) -> None:
    columns = columns_of(table)
    for column in range(len(columns.names)):
        codes = columns.codes[:, column].tolist()
        assert list(dict.fromkeys(codes)) == list(range(len(columns.values[column])))


def test_lengths_count_characters_and_null_has_none() -> None:
    columns = encode({"ab": ["é😀", None, "", "é😀"], "c": ["x", "yy", "zzz", "x"]})
    assert columns.lengths.tolist() == [2, 0, 0, 1, 2, 3]
    assert columns.offsets.tolist() == [0, 3, 6]


def test_null_is_not_the_empty_text() -> None:
    assert len(encode({"a": [None, ""]}).values[0]) == 2


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([1, 2, None]), ["1", "2", None]),
        (pa.array([True, False, True]), ["true", "false", "true"]),
        (pa.array([0.5, 2.0]), ["0.5", "2"]),
        (pa.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", "é", None], pa.string_view()), ["a", "é", None]),  # what polars gives
        (pa.nulls(2), [None, None]),
        (pa.chunked_array([["a", "b"], ["b", "c"]]), ["a", "b", "b", "c"]),
    ],
    ids=[
        "int",
        "bool",
        "float",
        "date",
        "dictionary",
        "with NULL",
        "large",
        "view",
        "null",
        "chunks",
    ],
)
def test_columns_of_any_type_are_written_as_text(
    array: pa.Array | pa.ChunkedArray, text: list[str | None]
) -> None:
    assert decode(encode(pa.table({"a": array}))) == [[value] for value in text]


def test_categories_of_polars_are_written_as_text() -> None:
    kinds = {"a": pl.Categorical, "b": pl.Enum(["x", "y"])}
    frame = pl.DataFrame({"a": ["x", None, "x"], "b": ["y", "x", None]}, schema=kinds)
    assert decode(encode(frame)) == [["x", "y"], [None, "x"], ["x", None]]
    twice = pl.concat([frame, frame], rechunk=False)
    assert decode(encode(twice)) == decode(encode(frame)) * 2
    assert encode(frame.slice(0, 0)).shape == (0, 2)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([frozenset("x")], "cannot be read as text.*all as text"),
        ([[1], [2]], "contains lists or structs.*json.dumps"),
        ([{1}, {2}], "contains lists or structs.*json.dumps"),
        ([{"x": 1}], "contains lists or structs.*json.dumps"),
        ("xyz", "is of type str. Expected a list of values"),
        (b"xyz", "is of type bytes"),
        ([1, "x"], "mixes types: int, str"),
    ],
)
def test_what_is_wrong_with_a_column_is_said(column: object, message: str) -> None:
    with pytest.raises(TableError, match=f"Column 'a' .*{message}"):
        encode({"a": column})


def test_a_frame_that_arrow_cannot_take_is_refused() -> None:
    with pytest.raises(TableError, match="Duplicate column names"):
        encode(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_columns_of_one_name_stay_apart() -> None:
    columns = encode(pa.table([["a", "b"], ["c", "c"]], names=["x", "x"]))
    assert columns.names == ("x", "x")
    assert decode(columns) == [["a", "c"], ["b", "c"]]


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(TableError, match="Column 'b' has 1 rows, but column 'a' has 2"):
        encode({"a": ["x", "y"], "b": ["x"]})


def test_a_column_without_text_form_is_refused_by_name() -> None:
    with pytest.raises(TableError, match="Column 'a' of type"):
        encode(pa.table({"a": pa.array([{"x": 1}])}))


@pytest.mark.parametrize("table", [["a"], "a", 7, None, (c for c in "ab"), [["x"]]])
def test_what_is_no_table_is_refused_by_its_type(table: object) -> None:
    with pytest.raises(TableError, match=f"{type(table).__name__} is not a table"):
        encode(table)


@pytest.mark.parametrize("column", [7, None, (text for text in "ab"), [["x"], "y"], [{1}]])
def test_a_column_that_is_none_is_refused_by_name(column: object) -> None:
    with pytest.raises(TableError, match="'a'"):
        encode({"a": column})


def test_a_table_of_no_columns_or_rows_is_one() -> None:
    assert encode({}).shape == (0, 0)
    assert encode({"a": []}).shape == (0, 1)
    assert encode(pa.table({"a": pa.array([], pa.int64())})).shape == (0, 1)


def test_text_that_is_not_unicode_is_refused_by_name() -> None:
    with pytest.raises(TableError, match="Column 'a' cannot be read as text"):
        encode({"a": ["\ud800"]})


def test_integers_beyond_64_bits_are_written_as_text() -> None:
    assert encode({"a": [10**30, None, -(2**64)]}).values[0].to_pylist() == [
        str(10**30),
        None,
        str(-(2**64)),
    ]


def test_a_list_of_rows_is_a_table() -> None:
    columns = encode([{"a": 1}, {"a": 2, "b": "z"}])
    assert columns.names == ("a", "b")
    assert columns.values[1].to_pylist() == [None, "z"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pl.LazyFrame({"a": [1]}), "LazyFrame is not a table. Collect it first"),
        (Path("t.csv"), "PosixPath is not a table. Read the file first"),
        (pd.Series(["x"], name="a"), "Series is one column, not a table.*{'a': values}"),
        (pl.Series(["x"]), "Series is one column, not a table"),
        (pa.chunked_array([["x"]]), "ChunkedArray is one column, not a table"),
        (pd.DataFrame({"a": [2**80, 1]}), "cannot be read.*cast it to text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "a unique name"),
        (pd.DataFrame({"a": [1, "x"]}), "values of one type"),
    ],
)
def test_what_no_table_can_be_read_from_is_refused_with_a_remedy(
    table: object, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        encode(table)
