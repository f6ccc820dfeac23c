"""Tables come from files, from DuckDB files and from other libraries, and all read alike."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relquery.connection import Connection, connect
from relquery.errors import TableError
from tests.cases import values
from tests.sql.conftest import asked_of, opened, upper_or_length
from tests.sql.fakes import FakeBackend

ROWS = {"id": [1, 2, 3], "my text": ["a", None, 'q"🎉']}


def csv(folder: Path) -> Path:
    path = folder / "rows.csv"
    path.write_text('id,my text\n1,a\n2,\n3,"q""🎉"\n', encoding="utf-8")
    return path


def csv_gz(folder: Path) -> Path:
    path = folder / "rows.csv.gz"
    path.write_bytes(gzip.compress(csv(folder).read_bytes()))
    return path


def parquet(folder: Path) -> str:
    path = folder / "it's rows.parquet"
    pq.write_table(pa.table(ROWS), path)
    return str(path)


def json_lines(folder: Path) -> Path:
    path = folder / "rows.jsonl"
    rows = pa.table(ROWS).to_pylist()
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def json_array(folder: Path) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(pa.table(ROWS).to_pylist()), encoding="utf-8")
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": csv,
    "csv_gz": csv_gz,
    "parquet": parquet,
    "jsonl": json_lines,
    "json": json_array,
    "pandas": lambda _: pd.DataFrame(ROWS),
    "polars": lambda _: pl.DataFrame(ROWS),
    "polars lazy": lambda _: pl.LazyFrame(ROWS),
    "arrow": lambda _: pa.table(ROWS),
    "arrow batch": lambda _: pa.record_batch(ROWS),
    "arrow reader": lambda _: pa.table(ROWS).to_reader(),
    "dict": lambda _: ROWS,
    "dicts": lambda _: pa.table(ROWS).to_pylist(),
}


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect(FakeBackend(upper_or_length), ledger=None) as connection:
        yield connection


@pytest.fixture
def new_con() -> Iterator[Connection]:
    with connect(FakeBackend(upper_or_length), ledger=None) as connection:
        yield connection


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_reads_the_same_from_every_source(
    source: str, new_con: Connection, tmp_path: Path
) -> None:
    con = new_con
    con.register("my rows", SOURCES[source](tmp_path))
    for _ in range(2):  # a reader can be read once only, a table again
        result = con.sql('SELECT LLM(\'up\', "My Text") FROM "my rows" ORDER BY id')
        assert result.fetchall() == [("A",), (None,), ('Q"🎉',)]
    assert con.tables()["my rows"] == ["id", "my text"]


def test_rows_have_the_columns_of_all_of_them(con: Connection) -> None:
    for rows, columns, wanted in [
        ([{"a": 1}, {"a": 2, "b": "z"}], ["a", "b"], [(1, None), (2, "z")]),
        ([{"b": "z"}, {}, {"a": 2, "c": [1]}], ["b", "a", "c"],
         [("z", None, None), (None, None, None), (None, 2, [1])]),
        ([{}, {"a": {"x": 1}}, {"a": {"y": 2}}], ["a"],
         [(None,), ({"x": 1, "y": None},), ({"x": None, "y": 2},)]),
        ([{"A": 1}, {"a": 2}], ["A", "a_1"], [(1, None), (None, 2)]),
    ]:  # fmt: skip
        con.register("t", rows)
        assert con.tables()["t"] == columns
        assert con.sql("FROM t").fetchall() == wanted


def test_registering_a_name_again_replaces_the_table(con: Connection, tmp_path: Path) -> None:
    con.register("t", ROWS)
    con.register("t", {"other": [7]})
    assert con.sql("SELECT * FROM t").fetchall() == [(7,)]


def test_every_kind_of_table_replaces_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "bad.duckdb").write_bytes(b"no database" * 999)
    for name in ("p", "q"):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as file:
            file.execute(
                f"CREATE TABLE of_{name} AS SELECT '{name}' AS z; CREATE TABLE t AS FROM of_{name}"
            )
    kinds = {
        "x": tmp_path / "a.csv",
        "f": pd.DataFrame({"f": [1]}),
        "d": {"d": [1]},
        "p": tmp_path / "p.duckdb",
        "q": tmp_path / "q.duckdb",
    }
    for one, other in itertools.product(kinds, kinds):
        with closing(opened(setup="CREATE TABLE kept AS SELECT 1 AS k")) as con:
            for kind in (one, other, other):
                con.register("t", kinds[kind])
                tables = con.tables()
                files = {f"of_{kind}", f"t.of_{kind}", "t.t"} if kind in "pq" else set()
                assert tables.keys() == {"kept", "t", *files}
                assert tables["t"] == ["z" if kind in "pq" else kind]
            with pytest.raises(TableError):
                con.register("t", tmp_path / "bad.duckdb")
            assert con.tables() == tables, "what cannot be read replaces nothing"


def test_half_floats_are_single_ones_with_the_same_digits(con: Connection) -> None:
    halves = np.array([0.1, 65504, -0.5, np.nan], np.float16)
    for data in ({"a": halves}, pd.DataFrame({"a": halves}), pa.table({"a": halves})):
        con.register("t", data)
        assert con.sql("SELECT a::VARCHAR FROM t WHERE a < 70000 AND NOT isnan(a)").fetchall() == [
            ("0.1",), ("65504.0",), ("-0.5",)
        ]  # fmt: skip


def test_a_temporary_table_is_not_replaced(con: Connection, tmp_path: Path) -> None:
    con.sql("CREATE TEMP TABLE mine AS SELECT 1 AS a")
    (tmp_path / "a.csv").write_text("x\n1\n")
    for data in ({"b": [1]}, tmp_path / "a.csv"):
        with pytest.raises(TableError, match=r"temporary table 'mine'\. Drop it first"):
            con.register("mine", data)
    assert con.sql("FROM mine").fetchall() == [(1,)]


def test_reserved_words_and_quotes_are_names(con: Connection) -> None:
    con.register("select", {"from": ["x"], 'a"b': ["y"], "group by": ["z"]})
    result = con.sql('SELECT LLM(\'up\', "from", "a""b", "group by") AS "order" FROM "select"')
    assert (result.columns, result.fetchall()) == (["order"], [("Y|X|Z",)])


@pytest.mark.parametrize("case", ["lowercase", "uppercase"])
def test_names_may_be_folded(case: str) -> None:
    with opened() as connection:
        connection.sql(f"SET preserve_identifier_case TO '{case}'")
        connection.sql("CREATE TABLE Words AS SELECT 'a' AS Word")
        query = "SELECT * FROM (SELECT *, LLM('up', Word) AS Big FROM Words) WHERE Big = 'A'"
        assert connection.sql(query).fetchall() == [("a", "A")]


def test_columns_of_one_name_are_told_apart_by_suffixes(con: Connection) -> None:
    for data in [
        pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "x", "X"]),
        pd.DataFrame([[1, 2, 3]], columns=["x", "x", "X"]),
        {"x": [1], "X": [2], "x_1": [3]},
    ]:
        con.register("t", data)
        assert sorted(con.tables()["t"], key=str.lower)[0].lower() == "x"
        assert sorted(con.sql("SELECT * FROM t").fetchall()[0]) == [1, 2, 3]
        assert len({name.lower() for name in con.tables()["t"]}) == 3
        asked = asked_of(con)
        con.sql("SELECT LLM('x', *) FROM t")
        assert sorted(asked[0].fields.values()) == [1, 2, 3]


def test_all_tables_of_a_duckdb_file_are_at_hand(con: Connection, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE items AS SELECT 'pen' AS name; CREATE SCHEMA s")
        file.execute("CREATE TABLE s.prices AS SELECT 3 AS price")
    con.register("shop", path)
    assert con.sql("SELECT LLM('up', name), price FROM items, prices").fetchall() == [("PEN", 3)]
    assert con.sql("SELECT LLM('up', i.name) FROM shop.items i").fetchall() == [("PEN",)]
    assert con.tables()["items"] == con.tables()["shop.items"] == ["name"]
    assert con.tables()["shop.s.prices"] == ["price"]


def test_answers_can_be_written_to_a_file(con: Connection, tmp_path: Path) -> None:
    con.register("t", ROWS)
    path = tmp_path / "out.csv"
    con.sql(f"COPY (SELECT id, LLM('up', \"my text\") AS up FROM t ORDER BY id) TO '{path}'")
    assert path.read_text(encoding="utf-8") == 'id,up\n1,A\n2,\n3,"Q""🎉"\n'


def test_a_duckdb_file_is_the_database_itself(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with connect(FakeBackend(upper_or_length), database=path) as con:
        con.sql("CREATE TABLE items AS SELECT 'pen' AS name")
        con.sql("CREATE TABLE loud AS SELECT name, LLM('up', name) AS up FROM items")
        con.sql("INSERT INTO loud SELECT 'x', LLM('up', up) FROM loud")
    with duckdb.connect(str(path)) as file:
        assert file.execute("FROM loud").fetchall() == [("pen", "PEN"), ("x", "PEN")]
        assert file.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(2,)]


def test_what_is_no_table_is_a_table_error(con: Connection) -> None:
    cases: list[tuple[Any, Any, str]] = [
        ("t", "nowhere.csv", "Table 't'.*nowhere.csv does not exist"),
        ("t", 7, "Table 't' is of type int. Expected a path"),
        ("t", {"a": [1, 2], "b": [1]}, "Table 't' cannot be read as a table"),
        ("t", {}, "Table 't' has no columns"),
        ("t", pd.Series([1]), "Table 't' is of type Series"),
        ("t", [1, 2], "Table 't' is of type list"),
        ("t", "https://nowhere.invalid/a.csv", r"https://nowhere\.invalid/a\.csv cannot be read"),
        ("t", "s3://bucket/a.xlsx", "format"),
        ("t", "", "the path is empty"),
        ("", {"a": [1]}, "name of the table is empty"),
        (" ", "rows.csv", "name of the table is empty"),
        ("a\0b", {"a": [1]}, "zero byte"),
        (5, {"a": [1]}, "it must be text"),
        ("movies", "demo:movies", r"rq.demo_table\('movies'\)"),
    ]
    for name, data, message in cases:
        with pytest.raises(TableError, match=message):
            con.register(name, data)


NOTHING = (b"", b"\n \n", b"\xef\xbb\xbf")
EMPTY = "is empty: it has no line of column names"
LATIN = "Line 2 of .*latin.csv is not UTF-8 text. Convert the file to UTF-8, or .* pandas"
LONG = "a,b\n" + "1,2\n" * 30_000 + "1,2,3\n"


def test_a_file_that_cannot_be_read_says_why(con: Connection, tmp_path: Path) -> None:
    noise = b"\x00\xff not what it says" * 20
    for name, content, message in [
        ("rows.xls", b"x", r"Expected extensions: \.csv, .*\.parquet"),
        *((f"bad.{ending}", noise, "Table 't'") for ending in ("parquet", "json", "duckdb")),
        ("latin.csv", "a,b\n1,café\n".encode("latin-1"), LATIN),
        ("ragged.csv", LONG.encode(), r"Line 30002 of .*Expected Number of Columns: 2"),
        *((name, each, EMPTY) for name in ("a.csv", "a.tsv", "a.json", "a.jsonl")
          for each in NOTHING),
        *(("a.csv.gz", gzip.compress(each), EMPTY) for each in NOTHING),
    ]:  # fmt: skip
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=message):
            con.register("t", tmp_path / name)
    with pytest.raises(TableError, match=LATIN):
        con.sql(f"SELECT LLM('up', b) FROM '{tmp_path / 'latin.csv'}'")
    with pytest.raises(TableError):
        connect(FakeBackend(upper_or_length), database=tmp_path / "bad.duckdb")
    for name in ["folder", "folder.csv", "folder.db"]:
        (tmp_path / name).mkdir()
        with pytest.raises(TableError, match=f"{name} is a directory. Give one file"):
            con.register("t", tmp_path / name)


def test_lines_unlike_the_header_are_never_guessed_at(con: Connection, tmp_path: Path) -> None:
    for text, line, expected, found in values(__file__, "unlike_the_header.txt"):
        for name, data in (
            ("rows.csv", text.encode()),
            ("rows.csv.gz", gzip.compress(text.encode())),
        ):
            (tmp_path / name).write_bytes(data)
            columns = f"Expected Number of Columns: {expected} Found: {found}"
            with pytest.raises(TableError, match=f"Table 't': Line {line} of .*{columns}"):
                con.register("t", tmp_path / name)


def test_files_of_every_dialect_are_read(con: Connection, tmp_path: Path) -> None:
    for name, text, columns, rows in values(__file__, "dialects.txt"):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        con.register("t", tmp_path / name)
        result = con.sql("SELECT * FROM t")
        assert (result.columns, result.fetchall()) == (columns, rows)


def test_a_pattern_names_the_rows_of_several_files(con: Connection, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"id,name\n1,{name}\n")
    con.register("two", tmp_path / "*.csv")
    assert con.sql("SELECT name FROM two ORDER BY ALL").fetchall() == [("a",), ("b",)]
    (tmp_path / "b.csv").write_text("id,name\n1,b,too many\n")
    with pytest.raises(TableError, match=r"b\.csv"):
        con.register("two", str(tmp_path / "*.csv"))
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(TableError, match=r"\.csv, \.json"):
        con.register("two", tmp_path / "*")
    with pytest.raises(TableError, match="no file"):
        con.register("two", tmp_path / "*.parquet")


def test_a_table_is_taken_back(con: Connection) -> None:
    con.register("t", {"a": [1]})
    con.unregister("t")
    with pytest.raises(TableError, match="table 't' is not known"):
        con.unregister("t")
    con.sql("CREATE TABLE own AS SELECT 1 AS a")
    with pytest.raises(TableError, match="DROP TABLE"):
        con.unregister("own")
