"""Encoding: codes, distinct values and lengths say all that the table says."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import TableError
from relquery.reordering.encode import Columns, columns_of, encode
from tests.reordering.reference import Rows, Table
from tests.reordering.strategies import tables


def decode(columns: Columns) -> Rows:
    values = [distinct.to_pylist() for distinct in columns.values]
    return [
        [values[column][code] for column, code in enumerate(row)] for row in columns.codes.tolist()
    ]


@given(tables())
def test_codes_give_the_table_back_and_count_up_in_the_order_of_first_appearance(
    table: Table,
) -> None:
    columns = table.columns
    assert decode(columns) == table.cells
    for column in range(len(columns.names)):
        codes = columns.codes[:, column].tolist()
        assert list(dict.fromkeys(codes)) == list(range(len(columns.values[column])))


@given(tables(), st.randoms(use_true_random=False))
def test_some_rows_of_a_table_are_encoded_as_if_there_were_no_others(
    table: Table, random: Random
) -> None:
    whole = table.columns
    rows = [row for row in range(len(table.cells)) if random.random() < 0.5]
    some = columns_of(whole.names, whole.codes[rows], whole.values)
    alone = replace(table, cells=[table.cells[row] for row in rows]).columns
    assert decode(some) == decode(alone)
    assert np.array_equal(some.codes, alone.codes)
    assert np.array_equal(some.lengths, alone.lengths)
    assert np.array_equal(some.offsets, alone.offsets)


def test_lengths_count_characters_and_null_has_none() -> None:
    columns = encode({"ab": ["é😀", None, "", "é😀"], "c": ["x", "yy", "zzz", "x"]})
    assert columns.lengths.tolist() == [2, 0, 0, 1, 2, 3]
    assert columns.offsets.tolist() == [0, 3, 6]
    assert len(columns.values[0]) == 3, "NULL is not the empty text"


BIG = [10**30, None, -(2**64)]
WRITTEN: list[tuple[Any, list[str | None]]] = [
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
    (pa.array([0.0, -0.0, None, 1e-7]), ["0", "0", None, "1e-7"]),
    (pa.array(np.array([0.1, 65504, -0.0, np.nan], np.float16)), ["0.1", "65504", "0", "nan"]),
    (
        pa.array([5, 93_784, -1, None], pa.duration("s")),
        ["00:00:05", "26:03:04", "-00:00:01", None],
    ),
    (pa.array([1_500_000, 0], pa.duration("us")), ["00:00:01.5", "00:00:00"]),
    (pa.array([5, 5], pa.duration("s")).dictionary_encode(), ["00:00:05", "00:00:05"]),
    (pa.array([1, -10], pa.duration("ns")), ["00:00:00.000000001", "-00:00:00.00000001"]),
    (BIG, [None if value is None else str(value) for value in BIG]),
]


def test_columns_of_any_type_are_written_as_text() -> None:
    for column, text in WRITTEN:
        assert decode(encode({"a": column})) == [[value] for value in text]
        if not isinstance(column, list):
            assert decode(encode(pa.table({"a": column}))) == [[value] for value in text]


def test_zeros_are_one_value_and_durations_are_as_duckdb_writes_them() -> None:
    assert encode({"a": [0.0, -0.0, 0.5]}).codes[:, 0].tolist() == [0, 0, 1]
    chance = Random(3)
    numbers = [chance.randint(-(10**k), 10**k) for k in range(15) for _ in range(9)]
    column = pa.array(numbers, pa.duration("us"))
    with duckdb.connect() as con:
        con.register("t", pa.table({"a": column}))
        expected = con.sql("SELECT CAST(a AS VARCHAR) FROM t").fetchall()
    assert decode(encode({"a": column})) == [list(row) for row in expected]


def test_categories_of_polars_are_written_as_text() -> None:
    kinds = pl.Schema({"a": pl.Categorical(), "b": pl.Enum(["x", "y"])})
    frame = pl.DataFrame({"a": ["x", None, "x"], "b": ["y", "x", None]}, schema=kinds)
    assert decode(encode(frame)) == [["x", "y"], [None, "x"], ["x", None]]
    twice = pl.concat([frame, frame], rechunk=False)
    assert decode(encode(twice)) == decode(encode(frame)) * 2
    assert encode(frame.slice(0, 0)).shape == (0, 2)


def test_columns_of_one_name_stay_apart() -> None:
    columns = encode(pa.table([["a", "b"], ["c", "c"]], names=["x", "x"]))
    assert columns.names == ("x", "x")
    assert decode(columns) == [["a", "c"], ["b", "c"]]


def test_a_table_of_no_columns_or_rows_is_one() -> None:
    assert encode({}).shape == (0, 0)
    assert encode({"a": []}).shape == (0, 1)
    assert encode(pa.table({"a": pa.array([], pa.int64())})).shape == (0, 1)


def test_a_list_of_rows_is_a_table() -> None:
    columns = encode([{"a": 1}, {"a": 2, "b": "z"}])
    assert columns.names == ("a", "b")
    assert columns.values[1].to_pylist() == [None, "z"]


REFUSED: list[tuple[Any, str]] = [
    (["a"], "list is not a table"),
    ("a", "str is not a table. Read the file first"),
    (7, "int is not a table"),
    (None, "NoneType is not a table"),
    ((c for c in "ab"), "generator is not a table"),
    ([["x"]], "list is not a table"),
    (pl.LazyFrame({"a": [1]}), "LazyFrame is not a table. Collect it first"),
    (Path("t.csv"), "PosixPath is not a table. Read the file first"),
    (pd.Series(["x"], name="a"), "Series is one column, not a table.*{'a': values}"),
    (pl.Series(["x"]), "Series is one column, not a table"),
    (pa.chunked_array([["x"]]), "ChunkedArray is one column, not a table"),
    (pd.DataFrame({"a": [2**80, 1]}), "cannot be read.*cast it to text"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names.*a unique name"),
    (pd.DataFrame({"a": [1, "x"]}), "values of one type"),
    (pa.table({"a": pa.array([{"x": 1}])}), "Column 'a' of type .* contains lists or structs"),
    ({"a": ["x", "y"], "b": ["x"]}, "Column 'b' has 1 rows, but column 'a' has 2"),
]
REFUSED_COLUMNS: list[tuple[Any, str]] = [
    ([frozenset("x")], "cannot be read as text.*all as text"),
    ([[1], [2]], "contains lists or structs.*json.dumps"),
    ([{1}, {2}], "contains lists or structs.*json.dumps"),
    ([{"x": 1}], "contains lists or structs.*json.dumps"),
    ("xyz", "is of type str. Expected a list of values"),
    (b"xyz", "is of type bytes"),
    ([1, "x"], "mixes types: int, str"),
    (["\ud800"], "cannot be read as text"),
    (7, ""),
    (None, ""),
    ((text for text in "ab"), ""),
    ([["x"], "y"], ""),
    ([{1}], ""),
]


def test_what_is_no_table_or_column_is_refused_by_name_with_a_remedy() -> None:
    for table, message in REFUSED:
        with pytest.raises(TableError, match=message):
            encode(table)
    for column, message in REFUSED_COLUMNS:
        with pytest.raises(TableError, match=f"Column 'a' .*{message}"):
            encode({"a": column})
