"""A connection runs one query at a time, in one thread, until it is closed; else it says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relquery import span
from relquery.connection import Connection, connect
from relquery.errors import QueryError
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend, Fields

CALL = "SELECT LLM('up', title) FROM films WHERE id = 1"
BUSY = r"running another query\. Open a second one with rq\.connect\(\.\.\.\), or wait\."
USES: dict[str, Callable[[Connection], object]] = {
    "a query with calls": lambda con: con.sql(CALL),
    "a query without": lambda con: con.sql("SELECT 1"),
    "a failing query": lambda con: con.sql("SELECT nosuch FROM films"),
    "tables": lambda con: con.tables(),
    "a dict": lambda con: con.register("t", {"a": [1]}),
    "a file": lambda con: con.register("t", __file__),
}


def test_another_thread_is_told_to_open_its_own(con: Connection, backend: FakeBackend) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slowly(query: str, fields: Fields) -> str:
        asked.set()
        assert go_on.wait(30)
        return upper_or_length(query, fields)

    backend.function = slowly
    rows: list[object] = []
    other = threading.Thread(target=lambda: rows.extend(con.sql(CALL).fetchall()))
    other.start()
    assert asked.wait(30)
    try:
        for use in USES.values():
            with pytest.raises(QueryError, match=BUSY):
                use(con)
    finally:
        go_on.set()
        other.join()
    assert rows == [("ALIEN",)]


def test_a_query_with_calls_inside_of_another_is_refused(con: Connection) -> None:
    looked: list[object] = []
    with pytest.raises(QueryError, match=BUSY):
        con.sql(CALL, progress=lambda *_: looked.append(con.sql(CALL)))
    query = "SELECT count(*) FROM films"  # it may look at the tables
    con.sql(CALL, progress=lambda *_: looked.append(con.sql(query).fetchall()))
    assert looked[0] == [(6,)]
    assert con.sql(CALL).fetchall() == [("ALIEN",)]


def test_a_closed_connection_says_that_it_is_closed(backend: FakeBackend, tmp_path: Path) -> None:
    con = connect(backend, ledger=None)
    con.close()
    for use in [each for name, each in USES.items() if name != "a file"]:
        with pytest.raises(QueryError, match=r"is closed\. Open a new one with rq\.connect"):
            use(con)
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    with pytest.raises(QueryError, match="The connection is closed"):  # the file is not blamed
        con.register("t", path)


def test_a_connection_closed_by_its_own_query_says_so(backend: FakeBackend) -> None:
    con = connect(backend, ledger=None)
    with pytest.raises(QueryError, match="The connection is closed"):
        con.sql("SELECT LLM('up', 1)", progress=lambda *_: con.database.close())


def test_a_span_query_and_its_errors_leave_the_connection_free(con: Connection) -> None:
    with pytest.raises(QueryError):
        con.explain("x")
    con.explain(span.generate("Why?"))
    assert con.sql("SELECT 1").fetchall() == [(1,)]
