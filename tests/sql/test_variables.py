"""Frames, Arrow tables and results are tables by the names of the variables that hold them."""

from __future__ import annotations

import weakref

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, UnknownTableError

everywhere = pa.table({"word": ["global"]})


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_a_statement_reads_the_variable_as_it_is_now(con: Connection, kind: type) -> None:
    query = "SELECT LLM('up', w.word) FROM words AS w"
    words = kind({"word": ["one"]})
    assert con.sql(query).fetchall() == [("ONE",)]
    words = kind({"word": ["two"]})
    assert con.sql(query).fetchall() == [("TWO",)]
    assert "TWO" in str(con.preview(query))
    assert "up (word)" in str(con.explain(query))
    assert "words" not in con.tables()
    del words
    with pytest.raises(UnknownTableError):
        con.sql(query)


def test_results_relations_and_globals_are_read_too(con: Connection) -> None:
    first = con.sql("SELECT 5 AS a")
    relation = duckdb.sql("SELECT 6 AS a")
    both = con.execute("FROM first UNION ALL FROM relation ORDER BY a")
    assert both.fetchall() == [(5,), (6,)]
    assert con.sql("SELECT word FROM everywhere").fetchall() == [("global",)]
    assert first is not None
    assert relation is not None


def test_a_variable_that_is_deleted_is_freed(con: Connection) -> None:
    words = pd.DataFrame({"word": ["one"]})
    freed = weakref.ref(words)
    assert con.sql("SELECT word FROM words").fetchall() == [("one",)]
    del words
    assert freed() is None


def test_tables_and_names_in_with_come_first(con: Connection) -> None:
    films = entry = made = pa.table({"id": [77]})
    assert len({id(films), id(entry), id(made)}) == 1
    assert con.sql("SELECT max(id) < 77 FROM films").fetchall() == [(True,)]
    assert con.sql("WITH entry AS (SELECT 5 AS id) SELECT id FROM entry").fetchall() == [(5,)]
    con.sql("CREATE TABLE made AS SELECT 1 AS a; SELECT a FROM made")
    assert con.sql("SELECT a FROM made").fetchall() == [(1,)]


def test_a_view_over_a_variable_says_what_to_do(con: Connection) -> None:
    reader = pa.table({"id": [7]}).to_reader()
    assert reader is not None
    assert con.sql("SELECT id FROM reader").fetchall() == [(7,)]
    frame = pa.table({"id": [77]})
    with pytest.raises(QueryError, match=r"con.register\('frame', frame\)"):
        con.sql("CREATE VIEW v AS FROM frame")
    assert frame


def test_other_variables_are_not_tables(con: Connection) -> None:
    rows = [{"a": 1}]
    with pytest.raises(UnknownTableError, match="rows"):
        con.sql("FROM rows")
    assert rows
