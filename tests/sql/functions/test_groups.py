"""Functions of several rows: AI_AGG, AI_SUMMARIZE_AGG and AI_RANK."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields
from tests.sql.functions.replies import ANSWERS


def _by_length(fields: Fields) -> Answer:
    likely = {"Dune": -0.1, "Alien": -0.5, "Amelie": -1.0, "Brazil": -2.0}.get(
        fields["title"], -3.0
    )
    return Answer("Yes", Finish.STOP, scores={"Yes": likely, "No": -9.0})


def given(backend: FakeBackend) -> Any:
    """The data of the first request, which is a list where a group is asked about."""
    return backend.asked[0].fields


def test_a_rank_counts_from_the_best(con: Connection) -> None:
    ANSWERS["Is this a good match for: sandy?"] = _by_length
    query = "SELECT id, AI_RANK('sandy', title) AS r FROM films QUALIFY r <= 4 ORDER BY id"
    assert con.sql(query).fetchall() == [(1, 2), (2, 4), (4, 2), (6, 1)]


def test_ordering_by_rank_puts_the_best_first(con: Connection) -> None:
    ANSWERS["Is this a good match for: sandy?"] = _by_length
    query = "SELECT title FROM films ORDER BY AI_RANK('sandy', title), id LIMIT 3"
    assert con.sql(query).fetchall() == [("Dune",), ("Alien",), ("Alien",)]


FIRST_RANKS = [
    ("r, id LIMIT 3", True),
    ("2, id LIMIT 2", True),
    ("r NULLS FIRST, id LIMIT 3", True),
    ("AI_RANK('sandy', title), id LIMIT 3", True),
    ("r DESC, id LIMIT 3", False),  # the ranks of these count all rows
    ("id, r LIMIT 3", False),
    ("r, id LIMIT 3 OFFSET 1", False),
]


@pytest.mark.parametrize(("order", "cuts"), FIRST_RANKS)
def test_the_rows_that_rank_first_are_the_only_ones_of_which_more_is_asked(
    order: str, cuts: bool, con: Connection, backend: FakeBackend
) -> None:
    ANSWERS["Is this a good match for: sandy?"] = _by_length
    ranks = "SELECT id, AI_RANK('sandy', title) AS r FROM films"
    con.database.execute(f"CREATE OR REPLACE TABLE ranked AS {_values(con, ranks)}")
    by_column = order.replace("AI_RANK('sandy', title)", "r")
    expected = con.sql(f"SELECT id, r FROM ranked ORDER BY {by_column}").fetchall()
    backend.asked.clear()
    query = f"SELECT id, AI_RANK('sandy', title) AS r, LLM('x', id) FROM films ORDER BY {order}"
    rows = con.sql(query).fetchall()
    assert [row[:2] for row in rows] == expected
    asked = sum(each.query == "x" for each in backend.asked)
    assert (asked == len(rows)) is cuts


def _values(con: Connection, query: str) -> str:
    rows = con.sql(query).fetchall()
    return "SELECT * FROM (VALUES {}) v(id, r)".format(
        ", ".join(f"({id_}, {'NULL' if rank is None else rank})" for id_, rank in rows)
    )


def test_a_group_is_asked_about_as_a_whole(con: Connection, backend: FakeBackend) -> None:
    for call in [
        "AI_AGG('What?', title)",
        "AI_AGG(title, 'What?')",
        "AI_AGG(title, instruction := 'What?')",
    ]:
        backend.asked.clear()
        ANSWERS["What?"] = "+".join
        query = f"SELECT genre, {call} AS a FROM films GROUP BY genre ORDER BY genre"
        assert con.sql(query).fetchall() == [
            ("comedy", "Amelie+Brazil"),
            ("drama", "Dune"),  # NULL is left out
            ("horror", "Alien+Alien"),
        ]
        assert len(backend.asked) == 3


def test_a_group_may_be_filtered_ordered_and_distinct(con: Connection) -> None:
    ANSWERS["What?"] = "+".join
    query = """
        SELECT AI_AGG('What?', title ORDER BY id DESC) FILTER (WHERE stars > 3),
               AI_AGG(DISTINCT genre, 'What?') FILTER (WHERE genre = 'drama'),
               AI_AGG('What?', title) FILTER (WHERE id > 99)
        FROM films"""
    result = con.sql(query)
    assert result.fetchall() == [("Alien+Brazil+Amelie+Alien", "drama", None)]
    assert result.columns[0] == "ai_agg('What?', title ORDER BY id DESC) FILTER (WHERE stars > 3)"


def test_a_group_of_several_fields_is_a_list_of_objects(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_AGG('What?', title, stars) FROM films WHERE id < 3")
    assert given(backend) == [
        {"title": "Alien", "stars": 4.5},
        {"title": "Amelie", "stars": 4.0},
    ]


def test_a_summary_is_an_aggregate_without_a_question(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_SUMMARIZE_AGG(title) FROM films WHERE id < 3")
    assert backend.asked[0].query == "Summarize the texts."
    assert given(backend) == ["Alien", "Amelie"]


def test_a_rank_where_rows_have_none_yet_names_a_way(con: Connection, backend: FakeBackend) -> None:
    for query, place in [
        ("SELECT id FROM films WHERE AI_RANK('x', title) < 3", "WHERE"),
        ("SELECT max(AI_RANK('x', title)) FROM films", "an aggregate"),
        (
            "SELECT AI_RANK('x', title) AS r, count(*) FROM films GROUP BY AI_RANK('x', title)",
            "GROUP",
        ),
    ]:
        with pytest.raises(QueryError, match=f"is in {place}.*QUALIFY"):
            con.sql(query)
        assert backend.asked == []


def test_a_rank_takes_its_arguments_in_both_orders(con: Connection) -> None:
    ANSWERS["Is this a good match for: sandy?"] = _by_length
    query = "SELECT AI_RANK(title, 'sandy') FROM films QUALIFY AI_RANK(title, 'sandy') = 1"
    result = con.sql(query)
    assert result.fetchall() == [(1,)]
    assert result.columns == ["ai_rank(title, 'sandy')"]


def test_a_call_without_columns_is_no_key_of_group_by_all(con: Connection) -> None:
    query = "SELECT LLM('Hi') AS k, count(*) FROM films WHERE false GROUP BY ALL"
    assert con.sql(query).fetchall() == [("No", 0)]


def test_clauses_of_an_aggregate_go_together(con: Connection, backend: FakeBackend) -> None:
    for call in [
        "AI_AGG(DISTINCT 'What?', title ORDER BY title)",
        "AI_AGG(title, 'What?' ORDER BY title)",
        "AI_AGG('What?', title ORDER BY title)",
    ]:
        backend.asked.clear()
        con.sql(f"SELECT {call} FROM films")
        assert backend.asked[0].query == "What?"
        assert given(backend) == sorted(given(backend))


def test_a_summary_may_have_an_instruction(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT AI_SUMMARIZE_AGG(title, instruction := 'Be brief.') FROM films")
    assert backend.asked[0].query == "Be brief."


def test_a_summary_takes_no_question(con: Connection) -> None:
    with pytest.raises(QueryError, match="write AI_AGG\\('In a line', column\\)"):
        con.sql("SELECT AI_SUMMARIZE_AGG(title, 'In a line') FROM films")


def test_distinct_may_precede_all_arguments(con: Connection, backend: FakeBackend) -> None:
    for call in [
        "AI_AGG(DISTINCT 'Which?', genre, max_tokens := 9)",
        "AI_AGG(DISTINCT genre, instruction := 'Which?')",
        "AI_AGG(DISTINCT 'Which?', genre ORDER BY genre)",
        "AI_SUMMARIZE_AGG(DISTINCT genre, instruction := 'Which?')",
    ]:
        backend.asked.clear()
        con.sql(f"SELECT {call} FROM films")
        texts = given(backend)
        assert backend.asked[0].query == "Which?"
        assert len(texts) == len(set(texts)) > 1


def test_distinct_arguments_may_have_names(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT AI_AGG(DISTINCT 'Which?', upper(genre) AS kind, id AS number) FROM films")
    assert set(given(backend)[0]) == {"kind", "number"}


def test_names_of_fields_may_precede_an_order(con: Connection, backend: FakeBackend) -> None:
    query = (
        "SELECT AI_AGG('What?', title AS name, id AS n ORDER BY id DESC) FROM films WHERE id < 3"
    )
    con.sql(query)
    assert [list(each) for each in given(backend)] == [["name", "n"]] * 2
    assert [each["n"] for each in given(backend)] == [2, 1]
