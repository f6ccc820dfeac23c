"""What cannot be a frame is refused when the frame is made."""

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
