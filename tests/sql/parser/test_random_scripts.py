"""Random scripts of views, macros, tables and parameters give the rows of plain DuckDB."""

from __future__ import annotations

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

TEXTS = ["title", "genre", "CAST(id AS VARCHAR)", "coalesce(title, $text)", "genre || $text"]
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["Yes", "'; DROP TABLE films; --", "$text", "", "horror", '"']),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A script and values of its parameters. Its last statement gives rows."""
    macros = [
        f"CREATE {draw(st.sampled_from(['', 'OR REPLACE ', 'TEMP ']))}MACRO even(x) AS "
        "LLM('yes', x) = 'Yes'",
        "CREATE MACRO loud(x) AS LLM('up', x)",
        "CREATE MACRO pair(x, y) AS loud(x) || CASE WHEN even(y) THEN y ELSE loud(y) END",
    ]
    inside = [text for text in TEXTS if "$" not in text]
    plain, asked = (
        st.sampled_from(inside),
        ["even({})", "loud({})", "pair({}, 'z')", "LLM('up', {})"],
    )
    one, other = draw(st.sampled_from(asked)), draw(st.sampled_from(asked))
    view = (
        f"CREATE VIEW v AS SELECT id, title, genre, {one.format(draw(plain))} AS a FROM films"
        f"{draw(st.sampled_from(['', ' WHERE even(genre)', ' WHERE id > 1 AND NOT even(title)']))}"
    )
    outer = (
        f"CREATE VIEW w(id, title, genre, b) AS SELECT id, title, genre, {other.format('a')} FROM v"
    )
    made = (
        f"CREATE TABLE made AS SELECT id, {other.format(draw(st.sampled_from(TEXTS)))} AS d FROM v"
    )
    written = other.format(draw(st.sampled_from(["$text", "''"])))
    rows = f"VALUES (3, {written}), ($n, NULL)"
    into = ["INSERT INTO made " + rows, f"INSERT INTO made FROM ({rows}) AS v(i, d) ORDER BY i"]
    inserted = draw(st.lists(st.sampled_from(into), max_size=1))
    source = draw(
        st.sampled_from(["films", "v", "w", "v AS x",
                         "v JOIN made USING (id)", "(SELECT * FROM w WHERE id <> $n) AS x"])
    )  # fmt: skip
    items = draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2))
    items = [draw(st.sampled_from(["{}", *asked])).format(item) for item in items]
    where = draw(st.sampled_from(["", " WHERE even(title)", " WHERE id > $n",
                                  " WHERE LLM('up', genre) = $text OR id < $n"]))  # fmt: skip
    end = (
        draw(st.sampled_from(["", " ORDER BY id, ALL LIMIT $n", ""]))
        if "JOIN" not in source
        else ""
    )
    end = end.replace("id, ALL", "ALL")
    last = f"SELECT id, {', '.join(items)}, $n + id FROM {source}{where}{end}"
    script = "; ".join([*macros, view, outer, made, *inserted, last])
    values = {"n": draw(st.integers(0, 7)), "text": draw(VALUES)}
    return script, {name: one for name, one in values.items() if f"${name}" in script}


def in_plain_duckdb(script: str, values: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """The rows and names of columns of the last statement."""
    with duckdb.connect() as plain:
        plain.execute(SETUP + MACROS)
        *_, last = parsed = plain.extract_statements(reference_sql(script))
        for one in parsed:
            given = {name: values[name] for name in one.named_parameters}
            plain.execute(one.query, given or None)
            if one is last:
                return plain.fetchall(), [column[0] for column in plain.description]
    raise AssertionError("a script has statements")


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(script=scripts())
def test_a_random_script_gives_the_rows_of_plain_duckdb(script: tuple[str, dict[str, Any]]) -> None:
    text, values = script
    wanted, names = in_plain_duckdb(text, values)
    backend = FakeBackend(upper_or_length)
    with connect(backend) as con:
        con.database.execute(SETUP)
        try:
            result = con.sql(text, values)
        except UnsupportedQueryError:
            assert not backend.asked
            return
    assert sorted(result.fetchall(), key=repr) == sorted(wanted, key=repr)
    if "LLM" not in text.rpartition(";")[2]:
        assert result.columns == names
