"""A frame takes tables of several libraries and gives the same back; what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import TableError, UnknownTableError
from relquery.frames.frame import frame
from relquery.sql.result import Result

COLUMNS = {"name": ["a", "b"], "n": [1, 2]}


def tables() -> list[Any]:
    return [
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        pa.table(COLUMNS),
        [{"name": "a", "n": 1}, {"name": "b", "n": 2}],
        COLUMNS,
    ]


@pytest.mark.parametrize("table", tables(), ids=lambda table: type(table).__name__)
def test_what_goes_in_comes_out(con: Connection, table: Any) -> None:
    given = frame(table, con).filter("n > 1").collect()
    assert type(given) is type(table)
    rows = given.to_dict("records") if isinstance(given, pd.DataFrame) else given
    rows = rows.to_dicts() if isinstance(rows, pl.DataFrame) else rows
    rows = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    assert rows in ([{"name": "b", "n": 2}], {"name": ["b"], "n": [2]})


def test_a_lazy_polars_frame_is_collected_when_the_frame_runs(con: Connection) -> None:
    ran = []

    def note(table: pl.DataFrame) -> pl.DataFrame:
        ran.append(table.height)
        return table

    lazy = pl.DataFrame(COLUMNS).lazy().map_batches(note)
    first = frame(lazy, con).filter("n > 1")
    assert not ran
    assert first.collect().to_dicts() == [{"name": "b", "n": 2}]
    assert first.collect().height == 1
    assert ran == [2]


def test_a_relation_of_duckdb_gives_a_relation(con: Connection) -> None:
    given = frame(duckdb.sql("SELECT 3 AS n"), con).with_columns(m="n + 1").collect()
    assert isinstance(given, duckdb.DuckDBPyRelation)
    assert given.fetchall() == [(3, 4)]


def test_files_and_tables_of_the_connection_give_results(con: Connection, tmp_path: Path) -> None:
    path = tmp_path / "some file.csv"
    path.write_text("name,n\na,1\nb,2\n", encoding="utf-8")
    con.register("known", pa.table(COLUMNS))
    for data in (path, str(path), "known", "KNOWN", "main.known"):
        given = frame(data, con).limit(1).collect()
        assert isinstance(given, Result)
        assert given.fetchall() == [("a", 1)]


def test_an_unknown_table_is_an_error_with_the_nearest_name(con: Connection) -> None:
    con.register("movies", pa.table(COLUMNS))
    with pytest.raises(UnknownTableError, match="Did you mean 'movies'"):
        frame("movie", con)
    with pytest.raises(TableError, match="Expected a path"):
        frame(3, con)


def test_a_pandas_frame_keeps_its_index_where_rows_stay(con: Connection) -> None:
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["one", "two"])
    lazy = frame(pd.DataFrame(COLUMNS, index=index), con)
    assert lazy.sort("n", descending=True).limit(1).collect().index.tolist() == [("y", 2)]
    assert lazy.sem_agg("Sum {name} up").collect().index.tolist() == [0]


def test_columns_that_verbs_change_have_the_dtypes_of_sql(con: Connection) -> None:
    kinds = pd.Categorical(["b", "a", None], categories=["c", "b", "a"], ordered=True)
    table = pd.DataFrame({"text": ["a", None, "c"], "kind": kinds, "n": [1, 2, 3]})
    table = table.astype({"n": "Int8"})
    changed = frame(table, con).with_columns(kind="upper(kind)", n="n / 2").collect()
    assert changed["kind"].tolist()[:2] == ["B", "A"]
    assert changed["kind"].dtype == changed["text"].dtype
    assert changed["n"].dtype == "float64"
    none = frame(table, con).sem_join(frame(table, con).limit(0), "{n:left} is {n:right}", "left")
    found = none.collect()
    assert found["n:right"].isna().all()
    assert found["kind:right"].dtype == table["kind"].dtype


def test_a_frame_keeps_the_rows_that_it_was_made_of(con: Connection) -> None:
    table = pd.DataFrame(COLUMNS)
    before = frame(table, con)
    table.loc[0, "n"] = 9
    after = frame(table, con)
    assert [one.collect()["n"].tolist() for one in (before, after)] == [[1, 2], [9, 2]]


def test_two_frames_over_one_table_are_registered_once_and_forgotten_with_the_last(
    fresh: Connection,
) -> None:
    con, table = fresh, pd.DataFrame(COLUMNS)
    con.register("frame_1", pa.table({"mine": [1]}))
    first, second = frame(table, con), frame(table, con)
    assert first.sql() == second.sql() == 'SELECT *\nFROM "frame_2"'
    assert "frame_2" in con.tables()
    del first
    assert second.collect()["n"].tolist() == [1, 2]
    del second
    frame([{"x": 1}], con).sql()
    assert con.tables()["frame_2"] == ["x"]
    assert con.tables()["frame_1"] == ["mine"]


def test_names_of_columns_may_be_anything(con: Connection) -> None:
    names = ['say "hi"', "order", "ünï ☂", "select *", "a.b", "it's", "place", "row_number"]
    table = pd.DataFrame({name: ["x", "y"] for name in names})
    lazy = frame(table, con)
    for at, name in enumerate(names):
        lazy = lazy.sem_map(f"Up {{{name}}}", output=f'"new {at}"')
    lazy = lazy.sort(*names).rename({name: name.upper() for name in names})
    lazy = lazy.rename({name.upper(): name for name in names})
    given = lazy.limit(1).collect()
    assert list(given.columns) == [*names, *(f"new {at}" for at in range(len(names)))]
    assert given.iloc[0, 0] == "x"


def test_a_missing_file_is_an_error_that_names_it(con: Connection) -> None:
    for name in ("nosuch.csv", "nosuch.parquet.gz", "a/b", "nosuch.duckdb"):
        for data in (name, Path(name)):
            with pytest.raises(TableError, match=f"^rq.frame: the file .*{name} does not exist"):
                frame(data, con)


def test_other_files_are_refused_by_name(con: Connection, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("a", encoding="utf-8")
    with pytest.raises(TableError, match=r"^rq.frame: the format of 'notes.txt' is unknown"):
        frame(str(path), con)
    with pytest.raises(TableError, match=r"^rq.frame: .* is a directory"):
        frame(tmp_path, con)
    with pytest.raises(TableError, match=r"^The data of rq.frame is of type int"):
        frame(3, con)


def test_tables_that_frames_have_registered_are_not_suggested(fresh: Connection) -> None:
    known = frame([{"x": 1}], fresh)
    fresh.register("movies", [{"x": 1}])
    known.sql()
    with pytest.raises(UnknownTableError, match=r"Known: movies\."):
        frame("frame_2", fresh)


def test_columns_that_differ_only_in_case_are_refused(con: Connection) -> None:
    twice: list[Any] = [
        pd.DataFrame([[1, 2]], columns=["Name", "name"]),
        pd.DataFrame([[1, 2]], columns=["name", "name"]),
        pl.DataFrame({"Name": 1, "name": 2}),
        pl.DataFrame({"Name": 1, "name": 2}).lazy(),
        pa.table({"Name": [1], "name": [2]}),
        [{"Name": 1, "name": 2}],
        {"Name": [1], "name": [2]},
        duckdb.sql("SELECT 1 AS name, 2 AS name"),
    ]
    for data in twice:
        with pytest.raises(TableError, match=r"Two columns are called '[Nn]ame' and 'name'"):
            frame(data, con)


def test_rows_in_memory_are_as_of_creation_and_tables_and_files_as_of_the_run(
    con: Connection, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n\n1\n", encoding="utf-8")
    con.register("t", {"n": [1]})
    memory = {"n": [1]}
    frames = [frame(data, con) for data in (memory, "t", path)]
    memory["n"] = [2]
    con.register("t", {"n": [2]})
    path.write_text("n\n2\n", encoding="utf-8")
    assert [lazy.result().fetchall() for lazy in frames] == [[(1,)], [(2,)], [(2,)]]
