"""A result is rows: iterated as tuples, printed as text, shown as a table in a notebook."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.report import Report
from relquery.sql.result import Result
from tests.sql.conftest import fails_for_dune, opened
from tests.sql.fakes import FakeBackend


@pytest.fixture
def result() -> Result:
    table = pa.table({"a<b": list(range(12)), "text": ["<script>", None, *"abcdefghij"]})
    return Result(table, (), Report())


def test_a_result_iterates_its_rows_as_tuples(result: Result) -> None:
    assert list(result) == result.fetchall()
    assert [number for number, _ in result] == list(range(12))


def test_rows_are_fetched_one_after_the_other(result: Result) -> None:
    assert result.fetchone() == (0, "<script>")
    assert result.fetchmany(2) == [(1, None), (2, "a")]
    assert len(result.fetchmany(100)) == 9
    assert result.fetchone() is None
    assert len(result.fetchall()) == 12


def test_rows_are_printed_and_written(
    result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result.show(2)
    assert capsys.readouterr().out.endswith("1   | NULL\n[12 rows, first 2 shown]\n")
    assert len(result.head()) == 5
    for ending in ("csv", "parquet"):
        path = tmp_path / f"rows.{ending}"
        getattr(result, f"write_{ending}")(path)
        written = duckdb.execute(f"SELECT * FROM '{path}'").fetchall()
        assert written == result.fetchall()
    result.head(1).write_csv(tmp_path / "one.csv", sep=";", header=False)
    assert ";" in (tmp_path / "one.csv").read_text().splitlines()[0]


def test_methods_of_duckdb_alone_are_answered_with_ours(result: Result, con: Connection) -> None:
    for of, name, remedy in (
        (result, "to_csv", r"write_csv\(path\)"),
        (result, "filter", "FROM result"),
        (con, "fetchall", "read the result"),
        (con, "executemany", "INSERT INTO t FROM df"),
    ):
        with pytest.raises(AttributeError, match=f"has no '{name}'. Write .*{remedy}"):
            getattr(of, name)
    assert not hasattr(result, "no_such")
    assert copy.copy(result).fetchall() == pickle.loads(pickle.dumps(result)).fetchall()


def test_a_notebook_shows_the_first_rows_escaped(result: Result) -> None:
    html = result._repr_html_()
    assert '<th class="n">a&lt;b</th><th>text</th>' in html
    assert '<td class="n">0</td><td>&lt;script&gt;</td>' in html
    assert "<script>" not in html
    assert html.count("<tr>") == 11
    assert "<p>12 rows, first 10 shown</p>" in html


def test_a_notebook_shows_null_apart_from_the_text_null() -> None:
    html = Result(pa.table({"t": [None, "NULL"]}), (), Report())._repr_html_()
    assert '<td><span class="null">NULL</span></td>' in html
    assert "<td>NULL</td>" in html


def test_a_notebook_cuts_long_texts_and_shows_them_whole_on_hover() -> None:
    text = "&" * 200
    html = Result(pa.table({"t": [text]}), (), Report())._repr_html_()
    assert f'title="{"&amp;" * 200}">{"&amp;" * 119}…<' in html


def test_numbers_are_short_with_all_digits_on_hover() -> None:
    html = Result(pa.table({"x": [0.1, 1 / 3]}), (), Report())._repr_html_()
    assert '<td class="n">0.1</td>' in html
    assert '<span title="0.3333333333333333">0.333333</span>' in html


def test_a_notebook_needs_nothing_from_elsewhere(result: Result) -> None:
    html = result._repr_html_()
    assert not re.search(r"<script|<link|<img|https?:|url\(|@import|on\w+=", html)


@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
def test_a_cell_without_a_value_says_why_on_hover_and_others_do_not() -> None:
    with opened(FakeBackend(fails_for_dune)) as con:
        result = con.sql("SELECT title, stars, LLM('up', title) AS u FROM films ORDER BY id DESC")
    assert result.reasons == {(0, 2): "out of spice"}
    html = result._repr_html_()
    assert html.count('class="bad"') == 1
    assert '<span class="bad" title="out of spice">NULL</span>' in html
    assert "<li>projection 1, row 5: out of spice</li>" in html
    assert "4 calls, " in html


def test_the_logger_names_each_stage(con: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="relquery"):
        con.sql("SELECT LLM('up', title) FROM films")
    # A server that another test left to end by itself may log beside it.
    (record,) = (each for each in caplog.records if each.name.startswith("relquery.sql"))
    assert re.fullmatch(r"projection 1: 6 rows, \d calls, \d+\.\d\d s", record.getMessage())
