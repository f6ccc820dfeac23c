"""The text of a prompt, and its fields and their names."""

from __future__ import annotations

import warnings

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, PromptWarning, QueryError
from tests.sql.fakes import FakeBackend
from tests.sql.functions.replies import ANSWERS


def test_columns_in_braces_are_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT AI_FILTER('Is {title} a {genre}?') FROM films WHERE id = 1")
    assert backend.asked[0].query.startswith('Is "title" a "genre"?')
    assert backend.asked[0].fields == {"title": "Alien", "genre": "horror"}


def test_a_column_in_braces_that_is_also_given_is_sent_once(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_FILTER('Is {title} good?', genre, title) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"genre": "horror", "title": "Alien"}


def test_a_qualified_column_in_braces_keeps_its_table(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql(
        "SELECT f.id FROM films f JOIN reviews r ON f.id = r.film "
        "AND AI_FILTER('Does {r.id} fit {f.id}?') WHERE r.id = 12"
    )
    assert backend.asked[0].fields == {"r.id": 12, "f.id": 2}


def test_a_number_in_braces_is_the_field_at_that_place(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_FILTER('Is {1} of {0}?', title, genre) FROM films WHERE id = 1")
    assert backend.asked[0].query.startswith('Is "genre" of "title"?')


def test_braces_without_a_column_are_sent_and_warned_about(
    con: Connection, backend: FakeBackend
) -> None:
    with pytest.warns(PromptWarning, match="no field or column has that name"):
        con.sql("SELECT LLM('Is {titel} good?', title) FROM films WHERE id = 1")
    assert backend.asked[0].query == "Is {titel} good?"


def test_doubled_braces_are_braces(con: Connection, backend: FakeBackend) -> None:
    con.sql('SELECT LLM(\'Fill in {{title}} as {"a": {"b": 1}}\', title) FROM films WHERE id = 1')
    assert backend.asked[0].query == 'Fill in {title} as {"a": {"b": 1}}'


def test_a_prompt_template_has_its_fields_in_the_text(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_FILTER(PROMPT('Is {0} of {1}, {0}?', title, stars)) FROM films WHERE id = 1")
    (asked,) = backend.asked
    assert asked.query == "Is Alien of 4.5, Alien?\nAnswer Yes or No."
    assert asked.fields == {}
    assert "JSON" not in str(asked.prompt[0].content)


def test_rows_of_a_template_are_asked_in_the_order_of_its_text(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT LLM(PROMPT('{0} {1}', genre, id)) FROM films")
    genres = [asked.query.split()[0] for asked in backend.asked]
    assert genres == ["horror", "horror", "comedy", "comedy", "drama", "drama"]


def test_explain_says_that_a_template_pins_the_order(con: Connection) -> None:
    (call,) = con.explain("SELECT LLM(PROMPT('Is {0} good?', title)) FROM films").calls
    assert call.order == "pinned"
    assert "PROMPT pins the order" in str(
        con.explain("SELECT LLM(PROMPT('{0}?', title)) FROM films")
    )


def test_a_prompt_may_be_the_value_of_a_column(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT id, LLM(title || '?', genre) AS a FROM films ORDER BY id"
    ANSWERS["Alien?"] = "monster"
    rows = con.sql(query).fetchall()
    assert rows[0] == (1, "monster")
    assert rows[4] == (5, None)  # no prompt, no call
    assert sorted(asked.query for asked in backend.asked) == [
        "Alien?",
        "Amelie?",
        "Brazil?",
        "Dune?",
    ]
    assert backend.asked[0].fields == {"genre": "horror"}


def test_fields_have_names_and_never_the_text_of_an_expression(
    con: Connection, backend: FakeBackend
) -> None:
    fields = "stars * 2 AS total, upper(genre), MODULE(title) AS name"
    con.sql(f"SELECT LLM('x', {fields}) FROM films LIMIT 1")
    assert backend.asked[0].fields == {"total": 9.0, "upper_genre": "HORROR", "name": "Alien"}


def test_errors_in_a_call_with_names_point_at_the_text_as_written(con: Connection) -> None:
    with pytest.raises(QueryError, match="line 1, column 42"):
        con.sql("SELECT LLM('x', id AS a) FROM films WERE id = 1")


def test_one_column_under_two_names_is_two_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('x', title AS a, title AS b, title, title) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"a": "Alien", "b": "Alien", "title": "Alien"}


def test_names_hold_in_a_subquery_that_depends_on_a_row(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql(
        "SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id "
        "AND LLM('x', r.text AS a, f.id AS b, f.title) = 'Yes') AND f.id = 6"
    )
    assert backend.asked[0].fields == {"a": "long", "b": 6, "title": "Dune"}


def test_fields_in_braces_have_their_table_where_names_would_clash(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql(
        "SELECT LLM('Does {r.id} fit {f.id} of {title}?', r.id, f.id, f.title) FROM films f "
        "JOIN reviews r ON f.id = r.film WHERE r.id = 12"
    )
    assert backend.asked[0].query == 'Does "r.id" fit "f.id" of "title"?'
    assert backend.asked[0].fields == {"r.id": 12, "f.id": 2, "title": "Amelie"}


def test_any_column_can_stand_in_braces(con: Connection, backend: FakeBackend) -> None:
    con.sql("""SELECT LLM('Is {ü} {"a b"}?') FROM (SELECT id AS ü, genre AS "a b" FROM films)""")
    assert backend.asked[0].query == 'Is "ü" "a b"?'
    assert {"ü": 1, "a b": "horror"} in [asked.fields for asked in backend.asked]


def test_an_alias_as_a_field_keeps_the_name_that_it_is_given(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT upper(title) AS k, LLM('x', k AS name) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"name": "ALIEN"}


def test_a_macro_can_name_its_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("CREATE OR REPLACE MACRO good(x) AS AI_FILTER('Good?', x AS film)")
    con.sql("SELECT id FROM films WHERE good(title)")
    assert backend.asked[0].fields.keys() == {"film"}


def test_a_model_is_not_taken_for_a_question(con: Connection, backend: FakeBackend) -> None:
    for call in [
        "AI_COMPLETE('llama3.1-70b', title)",
        "AI_COMPLETE('claude-4-sonnet', 'Summarize: ' || title)",
        "AI_COMPLETE('claude-4-sonnet', PROMPT('Summarize: {0}', title))",
        "AI_COMPLETE(model => 'claude-4-sonnet', prompt => 'Summarize: ' || title)",
    ]:
        with pytest.raises(QueryError, match="The model is that of the connection"):
            con.sql(f"SELECT {call} FROM films")
        assert backend.asked == []


def test_a_text_is_the_prompt_wherever_it_stands(con: Connection, backend: FakeBackend) -> None:
    for call in [
        "LLM(title, 'Summarize')",
        "AI_COMPLETE(title, 'Summarize')",
        "AI_COMPLETE(prompt => 'Summarize', text => title)",
        "AI_COMPLETE('Summarize', title, model_parameters => {'temperature': 0})",
    ]:
        backend.asked.clear()
        con.sql(f"SELECT {call} FROM films WHERE id = 1")
        assert backend.asked[0].query == "Summarize"
        assert backend.asked[0].fields == {"title": "Alien"}


def test_names_in_braces_that_are_not_sent_are_warned_about(
    con: Connection, backend: FakeBackend
) -> None:
    for call in [
        "AI_AGG('What of {genre}?', title)",
        "LLM(PROMPT('Is {0} a {genre}?', title))",
        "AI_FILTER('Is { nosuch } ok?', title)",
    ]:
        with pytest.warns(PromptWarning):
            con.sql(f"SELECT {call} FROM films WHERE id < 3")


def test_braces_in_a_semi_join_may_name_columns_of_both_tables(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql(
        "SELECT f.id FROM films f SEMI JOIN reviews r "
        "ON f.id = r.film AND AI_FILTER('Is {r.text} about {f.title}?') ORDER BY f.id"
    )
    assert {frozenset(asked.fields) for asked in backend.asked} == {
        frozenset({"r.text", "f.title"})
    }


def test_places_count_fields_with_and_without_names(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('Is {0} of {1}?', id + 1, title AS name) FROM films WHERE id = 1")
    assert backend.asked[0].query == 'Is "id" of "name"?'


def test_a_text_that_is_the_name_of_a_column_gives_a_warning(con: Connection) -> None:
    for call in [
        "AI_FILTER('Good?', 'title')",
        "AI_CLASSIFY('title', ['a', 'b'])",
        "LLM('Good?', id, 'title')",
    ]:
        ANSWERS["title"] = "a"
        with pytest.warns(PromptWarning, match="has the text 'title'.* write title without"):
            con.sql(f"SELECT {call} FROM films")


def test_other_texts_as_fields_give_none(con: Connection) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PromptWarning)
        con.sql("SELECT AI_FILTER('Good?', 'a title'), LLM('Good?', 'film') FROM films")


def test_a_prompt_with_a_hyphen_is_not_taken_for_a_model(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_COMPLETE('follow-up', title) FROM films WHERE id = 1")
    assert backend.asked[0].query == "follow-up"


def test_names_of_fields_may_follow_explain(con: Connection) -> None:
    for head in ["EXPLAIN", "EXPLAIN ANALYZE", "/* all */ EXPLAIN"]:
        stages = con.sql(f"{head} SELECT LLM('Good?', stars * 2 AS total) FROM films").arrow()
        assert stages["fields"].to_pylist() == ["total"]


def test_names_of_fields_may_be_in_a_prepared_statement(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("PREPARE p AS SELECT LLM('Good?', stars * 2 AS total) FROM films; EXECUTE p")
    assert list(backend.asked[0].fields) == ["total"]


def test_a_field_that_a_macro_gives_keeps_its_name(con: Connection, backend: FakeBackend) -> None:
    for body in ["upper(x)", "LLM('inner', x)", "x || LLM('inner', x)"]:
        con.sql(f"CREATE OR REPLACE MACRO m(x) AS {body}")
        con.sql("SELECT LLM('Is {f} good?', m(title) AS f) FROM films WHERE id = 1")
        assert backend.asked[-1].query == 'Is "f" good?'
        assert list(backend.asked[-1].fields) == ["f"]


def test_a_text_with_a_name_is_a_field(con: Connection, backend: FakeBackend) -> None:
    for call, values in [
        ("LLM('Film ' || id, 'new' AS kind)", None),
        ("LLM('Film ' || id, $kind AS kind)", {"kind": "new"}),
        ("AI_EXTRACT($kind AS kind, 'INTEGER')", {"kind": "new"}),
    ]:
        backend.asked.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)
            con.sql(f"SELECT {call} FROM films WHERE id = 1", values)
        assert backend.asked[0].fields == {"kind": "new"}
        assert backend.asked[0].query.startswith(("Film 1", "Extract"))
