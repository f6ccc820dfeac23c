"""A result is rows: iterated as tuples, printed as text, shown as a table in a notebook."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.report import Report
from relquery.sql.result import Result


@pytest.fixture
def result() -> Result:
    table = pa.table({"a<b": list(range(12)), "text": ["<script>", None, *"abcdefghij"]})
    return Result(table, (), Report())


def test_a_result_iterates_its_rows_as_tuples(result: Result):
    assert list(result) == result.fetchall()
    assert [number for number, _ in result] == list(range(12))


def test_a_notebook_shows_the_first_rows_escaped(result):
    html = result._repr_html_()
    assert html.startswith("<table><tr><th>a&lt;b</th><th>text</th></tr>")
    assert "<td>0</td><td>&lt;script&gt;</td>" in html
    assert "<script>" not in html
    assert html.count("<tr>") == 11
    assert html.endswith("<p>12 rows, first 10 shown</p>")


def test_the_logger_names_each_stage(con: Connection, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="relquery"):
        con.sql("SELECT LLM('up', title) FROM films")
    (record,) = caplog.records
    assert re.fullmatch(r"projection 1: 6 rows, \d calls, \d+\.\d\d s", record.getMessage())
    assert record.name.startswith("relquery.")
