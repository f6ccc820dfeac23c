"""Random queries give what plain DuckDB gives with the model written as SQL.

They combine joins, filters, groups and their sets, subqueries, macros, windows and names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.errors import UnsupportedQueryError
from tests.sql.conftest import MACROS, SETUP, reference_sql, upper_or_length
from tests.sql.fakes import FakeBackend

pytestmark = pytest.mark.long

MORE = """
CREATE MACRO tally(x) AS count(x);
CREATE MACRO longest(x) AS max(x);
CREATE MACRO place(x, y) AS rank() OVER (ORDER BY x, y);
CREATE MACRO shout(x) AS upper(x) || '!';
CREATE MACRO twice(x, y) AS x || '-' || y;
"""
ON_REVIEWS = [
    "f.id = r.film",
    "f.id = r.film AND LLM('yes', r.text) = 'No'",
    "LLM('up', r.text) IN ('GREAT', 'LONG') AND f.id = r.film AND f.id > 0",
    "LLM('yes', f.title) = 'No' AND f.id = r.film",
]
SHADOWS = [
    ["-f.id AS id", "row_number() OVER (ORDER BY id)"],
    ["list(title) OVER (PARTITION BY seen ORDER BY id)", "lower(title) AS title"],
    ["7 AS seen", "first(f.seen) OVER (PARTITION BY seen ORDER BY id)"],
]
TEXTS = ["f.title", "f.genre", "CAST(f.id AS VARCHAR)"]


@st.composite
def sources(draw: st.DrawFn) -> tuple[str, list[str]]:
    """(FROM clause with films as f, more columns of text that it has)."""
    first = draw(st.sampled_from(["films f", "(SELECT * FROM films WHERE id <> 4) AS f"]))
    if draw(st.booleans()):
        return first, []
    kind = draw(st.sampled_from(["JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN"]))
    on = draw(st.sampled_from(ON_REVIEWS if "N JOIN" not in kind else ON_REVIEWS[:1]))
    if kind in ("LEFT JOIN", "RIGHT JOIN"):
        on = ON_REVIEWS[0]
    clause, texts = f"{first} {kind} reviews r ON {on}", ["r.text"]
    if draw(st.booleans()):
        second = draw(st.sampled_from(["RIGHT", "FULL", "LEFT", "INNER", "SEMI", "ANTI"]))
        clause += f" {second} JOIN films g ON g.id = f.id"
        texts += ["g.title"] if second not in ("SEMI", "ANTI") else []
    return clause, texts


def texts_of(columns: list[str]) -> st.SearchStrategy[str]:
    """Expressions of one row whose values are texts."""
    base = st.sampled_from(columns)

    def more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            inner.map(lambda x: f"LLM('up', {x})"),
            inner.map(lambda x: f"LLM('yes', {x})"),
            inner.map(lambda x: f"shout({x})"),
            inner.map(lambda x: f"({x}).lower()"),
            inner.map(lambda x: f"coalesce({x}, 'none')"),
            st.tuples(inner, inner).map(lambda p: f"twice({p[0]}, {p[1]})"),
            st.tuples(inner, inner, inner).map(
                lambda p: f"CASE WHEN {p[0]} > 'D' THEN {p[1]} ELSE {p[2]} END"
            ),
            inner.map(lambda x: f"[t || 'x' FOR t IN [{x}]][1]" if "LLM" not in x else x),
            inner.map(lambda x: f"(SELECT max(i.title) FROM films i WHERE i.title > {x})"
                      if "LLM" not in x else x),
            st.just("(SELECT min(LLM('up', i.genre)) FROM films i)"),
        )  # fmt: skip

    return st.recursive(base, more, max_leaves=3)


def conditions_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        texts.map(lambda x: f"{x} > 'D'"),
        texts.map(lambda x: f"{x} IN ('Yes', 'ALIEN', 'horror')"),
        texts.map(lambda x: f"{x} IN (SELECT upper(i.title) FROM films i)"),
        st.tuples(texts, texts).map(lambda p: f"({p[0]} = 'No' OR NOT {p[1]} < 'C')"),
        st.just("EXISTS (SELECT 1 FROM reviews i WHERE i.film = f.id)"),
    )


@st.composite
def plain_queries(draw: st.DrawFn) -> str:
    clause, more = draw(sources())
    texts = texts_of(TEXTS + more)
    items = draw(st.lists(texts, min_size=1, max_size=3))
    if draw(st.booleans()):
        items.append(f"place({draw(texts)}, f.id)")
    if draw(st.booleans()):
        items.append("rank() OVER (PARTITION BY f.genre ORDER BY LLM('up', f.id), f.title)")
    names = [f"{item} AS a{at}" for at, item in enumerate(items)]
    names += draw(st.sampled_from([[], ["a0 || '?' AS b"], ["f.genre AS a0x"]]))
    if not more and draw(st.booleans()):  # a name that the FROM clause has, too
        names += draw(st.sampled_from(SHADOWS))
    distinct = draw(st.sampled_from(["", "DISTINCT ", "DISTINCT ON (a0) ", "DISTINCT ON (genre) "]))
    if "genre" in distinct:  # a name that the FROM clause has, too
        names = [f"{items[0]} AS genre", *names[1 : len(items)]]
    query = f"SELECT {distinct}{', '.join(names)} FROM {clause}"
    where = draw(st.lists(conditions_of(texts), max_size=2))
    if where:
        query += f" WHERE {' AND '.join(where)}"
    ends = ["", " ORDER BY ALL LIMIT 3", " ORDER BY ALL OFFSET 1"]
    return query + draw(st.sampled_from(ends[1:] if "ON" in distinct else ends))


@st.composite
def grouped_queries(draw: st.DrawFn) -> str:
    clause, more = draw(sources())
    texts = texts_of(TEXTS + more)
    keys = draw(st.lists(
        st.sampled_from(["f.genre", "f.seen", "upper(f.genre)", "f.title", "LLM('yes', f.title)",
                         "LLM('up', LLM('yes', f.genre))",
                         "(SELECT max(i.id) FROM films i WHERE i.id < f.id) + 1"]),
        max_size=2, unique=True))  # fmt: skip
    folded = st.one_of(
        st.just("count(*)"),
        texts.map(lambda x: f"max({x})"),
        texts.map(lambda x: f"tally({x})"),
        texts.map(lambda x: f"longest(LLM('up', {x}))"),
        texts.map(lambda x: f"count(*) FILTER (WHERE {x} > 'D')"),
        texts.map(lambda x: f"string_agg({x}, ',' ORDER BY {x}, f.id)"),
        texts.map(lambda x: f"array_to_string(list({x} ORDER BY {x} DESC), ',')"),
        st.just("(SELECT count(*) FROM reviews)"),
        st.just("(SELECT max(i.title) FROM films i WHERE i.genre > f.genre)"),
    )
    of_group = st.sampled_from(keys) | folded if keys else folded
    item = st.one_of(
        of_group,
        of_group.map(lambda x: f"LLM('up', {x})"),
        of_group.map(lambda x: f"LLM('up', LLM('yes', {x}))"),
        st.tuples(of_group, of_group).map(
            lambda p: f"CASE WHEN {p[0]} IS NULL THEN LLM('up', {p[1]}) ELSE LLM('yes', {p[0]}) END"
        ),
    )
    items = [
        f"{one} AS a{at}" for at, one in enumerate(draw(st.lists(item, min_size=1, max_size=3)))
    ]
    query = f"SELECT {', '.join(items)} FROM {clause}"
    if draw(st.booleans()):
        query += f" WHERE {draw(conditions_of(texts))}"
    listing = ", ".join(keys)
    if keys:
        forms = ["{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"]
        query += f" GROUP BY {draw(st.sampled_from(forms)).format(listing)}"
    if draw(st.booleans()):
        query += f" HAVING {draw(of_group.map(lambda x: f'''LLM('up', {x}) <> '1' '''))}"
    return query


Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def run_both() -> Iterator[Callable[[str], tuple[Rows, Rows] | None]]:
    """The rows that a query gives, and those of plain DuckDB; None if one of them refuses it."""
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=None) as con, duckdb.connect() as plain:
        con.database.execute(SETUP + MORE)
        plain.execute(SETUP + MACROS + MORE)

        def run(query: str) -> tuple[Rows, Rows] | None:
            backend.asked.clear()
            try:
                wanted = plain.execute(reference_sql(query)).fetchall()
                return con.sql(query).fetchall(), wanted
            except duckdb.Error:
                return None
            except UnsupportedQueryError:
                assert not backend.asked
                return None

        yield run


@settings(suppress_health_check=list(HealthCheck))
@given(query=st.one_of(plain_queries(), grouped_queries()))
def test_a_random_query_gives_the_rows_of_plain_duckdb(
    query: str, run_both: Callable[[str], tuple[Rows, Rows] | None]
) -> None:
    rows = run_both(query)
    if rows is not None:
        got, wanted = rows
        assert sorted(got, key=repr) == sorted(wanted, key=repr)
