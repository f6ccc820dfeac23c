"""Ctrl-C ends a statement in two seconds, also where DuckDB computes on within a part of the rows.

A function of Python that sleeps stands for what computes for long: DuckDB looks for an interrupt
only after it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from relquery.connection import connect
from relquery.errors import QueryError
from relquery.sql.host.statement_thread import StatementThread
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend

LIMIT = 4.0
"""Seconds in which control returns; two of them for a busy machine."""


def pressed(after: float) -> list[float]:
    """Presses Ctrl-C soon; gives when it has."""
    at: list[float] = []

    def press() -> None:
        at.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Timer(after, press).start()
    return at


def test_an_interrupted_statement_is_left_and_the_connection_is_usable_after_it() -> None:
    is_over, at = threading.Event(), list[list[float]]()

    def slow(value: int) -> int:
        at.append(pressed(0.1))
        is_over.wait(30)
        return value

    with duckdb.connect() as own:
        own.create_function("slow", slow, [int], int, side_effects=True)
        own.execute("CREATE TABLE t AS SELECT 1 AS a")
        con = connect(FakeBackend(upper_or_length), database=own)
        with pytest.raises(KeyboardInterrupt):
            con.sql("SELECT slow(a), LLM('up', a) FROM t")
        assert 1.5 <= time.monotonic() - at[0][0] < LIMIT
        with pytest.raises(QueryError, match="still ending the statement that was interrupted"):
            con.sql("SELECT 1")
        is_over.set()
        con.database.await_end()
        for _ in range(2):  # tables of the first one are in nobody's way
            assert con.sql("SELECT LLM('up', a) FROM t").fetchall() == [("1",)]
        frame = pa.table({"a": [5]})
        assert own.sql("SELECT a FROM frame").fetchall() == [(5,)], "as it was before"
        con.close()
    assert frame is not None


def test_a_file_that_was_begun_is_not_left_half_written(tmp_path: Path) -> None:
    path, is_over = tmp_path / "a.csv", threading.Event()

    def slow(value: int) -> int:
        if value == 300_000:
            pressed(0.1)
            is_over.wait(30)
        return value

    with duckdb.connect() as own:
        own.create_function("slow", slow, [int], int, side_effects=True)
        own.execute("SET threads = 1")
        con = connect(FakeBackend(upper_or_length), database=own)
        with pytest.raises(KeyboardInterrupt):
            con.sql(f"COPY (SELECT slow(range) FROM range(400_000)) TO '{path}'")
        assert not path.exists()
        is_over.set()
        con.database.await_end()
        assert not path.exists()
        con.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_statement_that_looks_for_interrupts_ends_at_once(
    restarts: bool, request: pytest.FixtureRequest
) -> None:
    """restarts: whether a signal leaves the main thread's wait as it is."""
    signal.siginterrupt(signal.SIGINT, not restarts)
    request.addfinalizer(lambda: signal.siginterrupt(signal.SIGINT, True))
    with connect(FakeBackend(upper_or_length)) as con:
        con.sql("SELECT 1")
        at = pressed(0.3)
        with pytest.raises(KeyboardInterrupt):
            con.sql(
                "SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b "
                "WHERE a.range = -1 OR b.range = -1"
            )
        assert time.monotonic() - at[0] < LIMIT
        assert con.sql("SELECT 1").fetchall() == [(1,)]


def test_threads_end_with_the_statement_and_other_threads_need_none() -> None:
    with connect(FakeBackend(upper_or_length)) as con:
        con.sql("SELECT 1")
        found: list[str] = []
        other = threading.Thread(
            target=lambda: found.append(
                con.database.fetch("SELECT 1") and threading.current_thread().name
            )
        )
        other.start()
        other.join()
        deadline = time.monotonic() + 5
        while any("duckdb" in one.name for one in threading.enumerate()):
            assert time.monotonic() < deadline
    assert found


def test_errors_and_results_are_those_of_the_statement() -> None:
    thread = StatementThread(lambda: None)
    assert thread.run(lambda: 7) == 7
    with pytest.raises(ValueError, match="mine"):
        thread.run(lambda: int(_raise(ValueError("mine"))))
    assert not thread.is_busy
    thread.end()


def _raise(error: Exception) -> str:
    raise error


_SCRIPT = """
import relquery as rq, sys
con = rq.connect("random:layers=1,hidden=64", ledger=sys.argv[1])
con.sql("SELECT LLM('Say it', x, labels := ['a']) FROM (SELECT unnest(['a', 'b']) AS x)")
print("ready", flush=True)
with con:
    con.sql(sys.argv[2])
"""
SLOW = """
WITH t AS (SELECT string_agg(md5(i::VARCHAR), '') AS x FROM range(450000) r(i) GROUP BY i % 1500)
SELECT sum(regexp_matches(x, '[0-8][0-9a-f]{300}[0-9]x')::INT) FROM t
"""
"""A minute within one part of the rows."""


@pytest.mark.long
def test_a_program_ends_with_its_answers_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "run.db"
    program = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(ledger), SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    time.sleep(1.0)
    began = time.monotonic()
    program.send_signal(signal.SIGINT)
    _, error = program.communicate(timeout=30)
    assert time.monotonic() - began < LIMIT
    assert b"KeyboardInterrupt" in error
    assert program.returncode != 0
    with connect("random:layers=1,hidden=64", ledger=ledger, form="text") as con:
        again = con.sql("SELECT LLM('Say it', coalesce('a'), labels := ['a'])")
    assert again.report.ledger_hits == 1
