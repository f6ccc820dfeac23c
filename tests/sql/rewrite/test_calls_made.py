"""How many calls a statement makes whose calls are in subqueries, WITH entries and joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, QueryError, UnsupportedQueryError
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend

INNER = "SELECT id, genre, title, LLM('up', id) AS a FROM films"
COUNTED = [
    (f"SELECT title, a FROM ({INNER}) WHERE genre = 'drama'", 2),
    (f"SELECT title FROM ({INNER}) WHERE genre = 'drama'", 0),
    (f"SELECT count(*) FROM ({INNER})", 0),
    (f"SELECT a FROM ({INNER}) LIMIT 2", 2),
    (f"SELECT a FROM ({INNER}) ORDER BY id DESC LIMIT 2 OFFSET 1", 3),
    (f"WITH c AS ({INNER}) SELECT a FROM c WHERE genre = 'drama' UNION ALL SELECT a FROM c "
     "WHERE id = 1", 3),
    (f"WITH c AS ({INNER}), d AS (SELECT * FROM c WHERE id < 4) SELECT a FROM d WHERE id > 2", 1),
    (f"WITH c AS ({INNER}), unread AS (SELECT LLM('up', title) FROM films) SELECT max(a) FROM c",
     6),
    ("SELECT a FROM (SELECT id, LLM('up', title) AS a FROM films UNION ALL "
     "SELECT film, LLM('up', text) FROM reviews) WHERE id = 2", 2),
    ("SELECT genre, max(LLM('up', id)) FROM films GROUP BY genre HAVING genre = 'drama'", 2),
    ("SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id AND "
     "LLM('yes', f.title, r.text) = 'Yes')", 4),
    ("SELECT id FROM films f WHERE genre = 'horror' AND NOT EXISTS (SELECT 1 FROM reviews r "
     "WHERE r.film = f.id AND LLM('yes', f.title, r.text) = 'Yes')", 2),
    ("SELECT id, (SELECT max(LLM('up', text)) FROM reviews WHERE film = f.id) FROM films f", 4),
    ("SELECT * FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'SCARY'",
     4),
    ("SELECT * FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'SCARY' "
     "WHERE f.id = 2", 1),
    ("SELECT id FROM films f ANTI JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'LONG' "
     "WHERE genre = 'drama'", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    "counted", [COUNTED[::2], pytest.param(COUNTED[1::2], marks=pytest.mark.long)]
)
def test_only_what_the_result_depends_on_is_asked_and_told(
    counted: list[tuple[str, int]],
    con: Connection,
    backend: FakeBackend,
    reference: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    for at, (query, calls) in enumerate(counted):
        backend.asked.clear()
        if at % 3 == 0:
            foretold = [call.calls for call in con.explain(query).calls]
            assert None in foretold or sum(count or 0 for count in foretold) >= calls, query
            assert not backend.asked
        assert sorted(con.sql(query).fetchall(), key=repr) == sorted(reference(query), key=repr)
        assert len(backend.asked) == calls, query


def test_fields_and_errors_are_named_as_written(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: Answer(None, Finish.ERROR, "no answer")
    with pytest.warns(PartialResultWarning):
        result = con.sql(
            "SELECT *, (SELECT max(text) FROM reviews WHERE film = f.id) FROM "
            "(SELECT id, LLM('up', title), title, info FROM films) f WHERE id = 1 AND EXISTS "
            "(SELECT 1 FROM reviews r WHERE r.film = f.id AND r.id = 10 "
            "AND LLM('yes', f.id, r.id, upper(f.title), f.info.year, r.text) = 'Yes')"
        )
    assert result.fetchall() == []
    assert result.columns[:3] == ["id", "llm('up', title)", "title"]
    assert "_rq_" not in str(result.columns)
    assert dict(result.errors[-1].inputs) == {
        "f.id": "1", "r.id": "10", "upper_title": "ALIEN", "year": "1979", "text": "great"
    }  # fmt: skip


REFUSED = [
    ("SELECT * FROM films f, LATERAL (SELECT LLM('up', r.text) FROM reviews r WHERE "
     "r.film = f.id) AS l", "the subquery is in the FROM clause"),
    ("SELECT (SELECT LLM('up', count(*)) FROM reviews r WHERE r.film = f.id) FROM films f",
     "about a group"),
    ("SELECT (SELECT max(LLM('up', text)) OVER () FROM reviews WHERE film = f.id LIMIT 1) "
     "FROM films f", "window function"),
    ("SELECT id FROM (SELECT *, random() AS r FROM films) f WHERE EXISTS (SELECT 1 FROM reviews "
     "WHERE film = f.id AND LLM('yes', text) = 'Yes')", "other rows whenever they are read"),
    ("SELECT f.id FROM films f FULL JOIN reviews r ON LLM('yes', f.title, *) = 'Yes'",
     "Name the table"),
]  # fmt: skip


def test_what_cannot_be_rewritten_is_refused(con: Connection, backend: FakeBackend) -> None:
    for query, said in REFUSED:
        with pytest.raises(UnsupportedQueryError, match=said) as caught:
            con.sql(query)
        assert "_rq_" not in str(caught.value)
        assert "call LLM on its rows" in str(caught.value)
    with pytest.raises(QueryError, match="sets seed twice"):  # though nothing reads the call
        con.sql("SELECT id FROM (SELECT id, LLM('up', id, seed := 1, seed := 2) AS a FROM films)")
    assert not backend.asked
