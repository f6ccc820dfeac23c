"""Whatever decides which calls a query makes, its rows are those of a call per row.

Limits, orders, cuts, filters, OR and CASE over answers, with equal inputs, NULL and failed answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.errors import PartialResultWarning
from relquery.prompt import Answer, Finish
from tests.sql.conftest import MACROS, reference_sql, upper_or_length
from tests.sql.fakes import FakeBackend, Fields

pytestmark = pytest.mark.long

ROWS = 150
TABLE = (
    "CREATE TABLE t AS SELECT id, if(hash(id) % 5 = 0, NULL, 'v' || hash(id + 7) % 13) AS a, "
    "repeat('x', (hash(id + 3) % 6)::INT) AS b, hash(id + 1) % 40 AS n, "
    f"if(hash(id + 2) % 4 = 0, NULL, hash(id + 2) % 2 = 0) AS f FROM range({ROWS}) r(id)"
)
# Two values of a cannot be answered; the model gives NULL for them.
FAILED = ("v3", "v11")
FAILING = """
CREATE MACRO failing(a) AS coalesce(CAST(a AS VARCHAR) IN ('v3', 'v11'), false);
CREATE OR REPLACE MACRO llm_up(a) AS if(failing(a), NULL, upper(llm_text(a)));
CREATE OR REPLACE MACRO llm_len(a) AS if(failing(a), NULL, length(llm_text(a))::DOUBLE);
CREATE OR REPLACE MACRO llm_yes(a) AS if(failing(a), NULL,
    CASE length(llm_text(a)) % 2 WHEN 0 THEN 'Yes' WHEN 1 THEN 'No' END);
"""


def fails_for_some(query: str, fields: Fields) -> str | Answer:
    """As `upper_or_length`, but some values cannot be answered."""
    if any(value in FAILED for value in fields.values()):
        return Answer(None, Finish.ERROR, "not today")
    return upper_or_length(query, fields)


FIELDS = st.sampled_from(["a", "b", "n", "id", "a || b"])
TEXTS = st.one_of(FIELDS.map("LLM('up', {})".format), FIELDS.map("LLM('yes', {})".format))
ATOMS = st.one_of(
    FIELDS.map("LLM('yes', {}) = 'Yes'".format),
    FIELDS.map("LLM('yes', {}) <> 'Yes'".format),
    FIELDS.map("LLM('up', {}) > 'V'".format),
    FIELDS.map("LLM('up', {}) IN ('V1', 'XX', '7')".format),
    FIELDS.map("LLM('up', {}) IS NULL".format),
    st.builds("coalesce(LLM('up', {}), LLM('yes', {})) > 'N'".format, FIELDS, FIELDS),
    FIELDS.map("CAST(LLM('len', {}) AS INT) > 1".format),
    st.sampled_from(["f", "n > 20", "a IS NULL", "b < 'xxx'", "NOT f"]),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("if({}, {}, {})".format, inner, inner, inner),
    ),
    max_leaves=4,
)
VALUES = st.one_of(
    TEXTS,
    CONDITIONS,
    st.builds("CASE WHEN {} THEN {} ELSE {} END".format, CONDITIONS, TEXTS, TEXTS),
    st.builds("CASE WHEN {} THEN {} WHEN {} THEN {} END".format, CONDITIONS, TEXTS, CONDITIONS,
              TEXTS),
    st.builds("CASE {} WHEN 'Yes' THEN {} WHEN {} THEN 'x' ELSE {} END".format, TEXTS, TEXTS, TEXTS,
              TEXTS),
    st.builds("coalesce({}, {}, 'none')".format, TEXTS, TEXTS),
)  # fmt: skip
FOLDED = st.one_of(
    st.builds("count(*) FILTER (WHERE {})".format, CONDITIONS),
    st.builds("max({}) FILTER (WHERE {})".format, TEXTS, CONDITIONS),
    st.builds("string_agg({}, ',' ORDER BY id)".format, VALUES.map("CAST({} AS VARCHAR)".format)),
    st.builds("bool_or({})".format, CONDITIONS),
)
KEYS = st.one_of(
    TEXTS, st.sampled_from(["n", "b", "f"]), st.builds("{} DESC NULLS LAST".format, TEXTS)
)


@st.composite
def row_queries(draw: st.DrawFn) -> str:
    items = draw(st.lists(VALUES, min_size=1, max_size=2))
    on = draw(st.sampled_from(["", "", "", "b", "f, b"]))
    query = f"SELECT {f'DISTINCT ON ({on}) ' if on else ''}id, {', '.join(items)} FROM t"
    query += where(draw, 3)
    if draw(st.booleans()):
        key, top = draw(KEYS), draw(st.integers(1, 5))
        query += f" QUALIFY row_number() OVER (PARTITION BY f ORDER BY {key}, id) <= {top}"
        if draw(st.booleans()):
            query += f" AND {draw(CONDITIONS)}"
    keys = draw(st.lists(KEYS, max_size=2))
    if keys or on or "QUALIFY" in query:  # otherwise rows come in the order of the table
        query += f" ORDER BY {', '.join([on, *keys, 'id'] if on else [*keys, 'id'])}"
    query += draw(st.sampled_from(["", " LIMIT 0", " LIMIT 1", " LIMIT 5", " LIMIT 30"]))
    return query + draw(st.sampled_from(["", "", " OFFSET 1", " OFFSET 9"]))


@st.composite
def folding_queries(draw: st.DrawFn) -> str:
    items = draw(st.lists(FOLDED, min_size=1, max_size=2))
    query = f"SELECT b, {', '.join(items)} FROM t{where(draw, 2)} GROUP BY b"
    if draw(st.booleans()):
        query += f" HAVING {draw(FOLDED)} IS NOT NULL AND LLM('yes', b) = 'Yes'"
    query += f" ORDER BY {draw(st.sampled_from(['b', 'count(*), b']))}"
    return query + draw(st.sampled_from(["", " LIMIT 2"]))


def where(draw: st.DrawFn, most: int) -> str:
    conditions = draw(st.lists(CONDITIONS, max_size=most))
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


Rows = list[tuple[Any, ...]]
Run = Callable[[str], tuple[Rows, Rows, int]]


@pytest.fixture(scope="module")
def run_both() -> Iterator[Run]:
    """The rows that a query gives, those of plain DuckDB, and the number of distinct requests that
    were made more than once.
    """
    backend = FakeBackend(fails_for_some)
    with connect(backend, ledger=None) as con, duckdb.connect() as plain:
        con.database.execute(TABLE)
        plain.execute(TABLE + ";" + MACROS + FAILING)

        def run(query: str) -> tuple[Rows, Rows, int]:
            backend.asked.clear()
            wanted = plain.execute(reference_sql(query)).fetchall()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PartialResultWarning)
                got = con.sql(query).fetchall()
            sent = [
                (one.query, repr(sorted(one.fields.items(), key=repr)), one.sampling)
                for one in backend.asked
            ]
            return got, wanted, len(sent) - len(set(sent))

        yield run


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(query=row_queries())
def test_rows_are_those_of_plain_duckdb_and_no_request_is_made_twice(
    query: str, run_both: Run
) -> None:
    got, wanted, twice = run_both(query)
    assert got == wanted
    assert not twice


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(query=folding_queries())
def test_groups_are_those_of_plain_duckdb(query: str, run_both: Run) -> None:
    got, wanted, _ = run_both(query)
    assert got == wanted
