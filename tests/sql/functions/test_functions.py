"""What each function asks and what its value is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, PartialResultWarning, PromptWarning, QueryError
from relquery.prompt import Answer, Finish, Sampling
from tests.sql.conftest import SETUP
from tests.sql.fakes import FakeBackend, Fields

ANSWERS: dict[str, Any] = {}


def answer(query: str, fields: Fields) -> str | Answer:
    """The answer set for the first line of a prompt; else whether the title begins with A."""
    first = query.partition("\n")[0]
    if first in ANSWERS:
        given = ANSWERS[first]
        return given(fields) if callable(given) else given
    is_row = isinstance(fields, dict)
    return "Yes" if is_row and str(fields.get("title")).startswith("A") else "No"


@pytest.fixture
def backend() -> FakeBackend:
    ANSWERS.clear()
    return FakeBackend(answer)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(SETUP)
        yield connection


def test_a_filter_is_true_or_false(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT id FROM films WHERE AI_FILTER('Is it good?', title) ORDER BY id"
    assert con.sql(query).fetchall() == [(1,), (2,), (4,)]
    assert backend.asked[0].query == "Is it good?\nAnswer Yes or No."
    assert backend.asked[0].sampling.labels == ("Yes", "No")


def test_a_filter_that_says_how_to_answer_is_sent_as_it_is(con, backend) -> None:
    con.sql("SELECT AI_FILTER('Good? Answer yes or no.', title) FROM films")
    assert backend.asked[0].query == "Good? Answer yes or no."


def test_a_filter_is_a_value_like_any_other(con: Connection) -> None:
    query = """
        SELECT count(*) FILTER (WHERE AI_FILTER('Good?', title)), bool_or(AI_FILTER('Good?', title))
        FROM films WHERE NOT AI_FILTER('Good?', title) OR id = 1"""
    assert con.sql(query).fetchall() == [(1, True)]


def test_columns_in_braces_are_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT AI_FILTER('Is {title} a {genre}?') FROM films WHERE id = 1")
    assert backend.asked[0].query.startswith('Is "title" a "genre"?')
    assert backend.asked[0].fields == {"title": "Alien", "genre": "horror"}


def test_a_column_in_braces_that_is_also_given_is_sent_once(con, backend) -> None:
    con.sql("SELECT AI_FILTER('Is {title} good?', genre, title) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"genre": "horror", "title": "Alien"}


def test_a_qualified_column_in_braces_keeps_its_table(con, backend) -> None:
    con.sql(
        "SELECT f.id FROM films f JOIN reviews r ON f.id = r.film "
        "AND AI_FILTER('Does {r.id} fit {f.id}?') WHERE r.id = 12"
    )
    assert backend.asked[0].fields == {"r.id": 12, "f.id": 2}


def test_a_number_in_braces_is_the_field_at_that_place(con, backend) -> None:
    con.sql("SELECT AI_FILTER('Is {1} of {0}?', title, genre) FROM films WHERE id = 1")
    assert backend.asked[0].query.startswith('Is "genre" of "title"?')


def test_braces_without_a_column_are_sent_and_warned_about(con, backend) -> None:
    with pytest.warns(PromptWarning, match="no field or column has that name"):
        con.sql("SELECT LLM('Is {titel} good?', title) FROM films WHERE id = 1")
    assert backend.asked[0].query == "Is {titel} good?"


def test_doubled_braces_are_braces(con: Connection, backend: FakeBackend) -> None:
    con.sql('SELECT LLM(\'Fill in {{title}} as {"a": {"b": 1}}\', title) FROM films WHERE id = 1')
    assert backend.asked[0].query == 'Fill in {title} as {"a": {"b": 1}}'


def test_a_prompt_template_has_its_fields_in_the_text(con, backend) -> None:
    con.sql("SELECT AI_FILTER(PROMPT('Is {0} of {1}, {0}?', title, stars)) FROM films WHERE id = 1")
    (asked,) = backend.asked
    assert asked.query == "Is Alien of 4.5, Alien?\nAnswer Yes or No."
    assert asked.fields == {}
    assert "JSON" not in str(asked.prompt[0].content)


def test_rows_of_a_template_are_asked_in_the_order_of_its_text(con, backend) -> None:
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


def test_fields_have_names_and_never_the_text_of_an_expression(con, backend) -> None:
    fields = "stars * 2 AS total, upper(genre), MODULE(title) AS name"
    con.sql(f"SELECT LLM('x', {fields}) FROM films LIMIT 1")
    assert backend.asked[0].fields == {"total": 9.0, "upper_genre": "HORROR", "name": "Alien"}


def test_errors_in_a_call_with_names_point_at_the_text_as_written(con: Connection) -> None:
    with pytest.raises(QueryError, match="line 1, column 42"):
        con.sql("SELECT LLM('x', id AS a) FROM films WERE id = 1")


@pytest.mark.parametrize(
    "call",
    [
        "AI_CLASSIFY(title, ['good', 'bad'], instruction := 'How is it?')",
        "AI_CLASSIFY('How is it?', title, ['good', 'bad'])",
        "AI_CLASSIFY(title, ['good', 'bad'], {'task_description': 'How is it?'})",
        "AI_CLASSIFY('How is it?', title, labels := ['good', 'bad'])",
    ],
)
def test_a_class_is_one_of_the_labels_in_any_order_of_arguments(call, con, backend) -> None:
    ANSWERS["How is it?"] = "bad"
    assert con.sql(f"SELECT {call} FROM films WHERE id = 1").fetchall() == [("bad",)]
    assert backend.asked[0].query == "How is it?\nAnswer good or bad."
    assert backend.asked[0].fields == {"title": "Alien"}
    assert backend.asked[0].sampling.labels == ("good", "bad")


def test_labels_may_be_described(con: Connection, backend: FakeBackend) -> None:
    ANSWERS["Classify the data."] = "a"
    con.sql(
        "SELECT AI_CLASSIFY(title, [{'label': 'a', 'description': 'first'}, {'label': 'b', "
        "'description': 'second'}]) FROM films WHERE id = 1"
    )
    assert "a: first\nb: second" in backend.asked[0].query


@pytest.mark.parametrize("option", ["multi := true", "{'output_mode': 'multi'}"])
def test_several_labels_are_a_list(option: str, con: Connection) -> None:
    ANSWERS["Classify the data."] = '{"answer": ["b", "a", "b"]}'
    query = f"SELECT AI_CLASSIFY(title, ['a', 'b', 'c'], {option}) FROM films WHERE id = 1"
    assert con.sql(query).fetchall() == [(["b", "a"],)]


def test_a_label_that_does_not_exist_is_an_error_of_the_row(con: Connection) -> None:
    ANSWERS["Classify the data."] = '{"answer": ["d"]}'
    with pytest.warns(PartialResultWarning):
        result = con.sql("SELECT AI_CLASSIFY(title, ['a'], multi := true) FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    assert "expected one of 'a'" in result.errors[0].error


def test_extracted_values_have_their_types(con: Connection) -> None:
    ANSWERS["people and the sum"] = json.dumps({"names": ["Ann", "Bob"], "amount": 0}).replace(
        " 0", " 12345678901234567.89"
    )
    query = """
        SELECT AI_EXTRACT(title, 'names VARCHAR[], amount DECIMAL(20,2)',
                          instruction := 'people and the sum') AS e FROM films WHERE id = 1"""
    value = {"names": ["Ann", "Bob"], "amount": Decimal("12345678901234567.89")}
    assert con.sql(query).fetchall() == [(value,)]
    assert con.sql(f"SELECT e.amount + 1 FROM ({query})").fetchall() == [
        (Decimal("12345678901234568.89"),)
    ]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("'INTEGER'", '{"answer": 7}', 7),
        ("{'who': 'Who wrote it?'}", '{"who": "Ann"}', {"who": "Ann"}),
        ("['who', 'when']", '{"who": "Ann", "when": null}', {"who": "Ann", "when": None}),
        (
            """'{"type": "object", "properties": {"n": {"type": "integer"}}}'""",
            '{"n": 3}',
            {"n": 3},
        ),
        ("'h HUGEINT'", '{"h": 170141183460469231731687303715884105727}', {"h": 2**127 - 1}),
    ],
)
def test_types_come_in_several_forms(type_: str, text: str, value: object, con) -> None:
    ANSWERS["Extract from the data what is asked for."] = text
    query = f"SELECT AI_EXTRACT(title, {type_}) FROM films WHERE id = 1"
    assert con.sql(query).fetchall() == [(value,)]


def test_llm_and_complete_take_a_type(con: Connection, backend: FakeBackend) -> None:
    ANSWERS["How old?"] = '{"answer": 12}'
    query = """
        SELECT LLM('How old?', title, output := 'INTEGER') + 1,
               AI_COMPLETE('How old?', title, response_format => 'INTEGER')
        FROM films WHERE id = 1"""
    assert con.sql(query).fetchall() == [(13, 12)]
    assert len(backend.asked) == 1  # both ask the same
    assert backend.asked[0].sampling.schema is not None


def test_an_invalid_value_is_null_with_an_error_that_says_what_is_wrong(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"day": "2024-02-30", "n": 1}'
    with pytest.warns(PartialResultWarning):
        result = con.sql("SELECT AI_EXTRACT(title, 'day DATE, n INTEGER') FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    assert result.errors[0].error == "day is '2024-02-30'; expected DATE."


def test_a_score_is_the_probability_of_the_first_label(con: Connection, backend) -> None:
    scores = {"Yes": -0.5, "No": -0.9327521295671886}
    ANSWERS["Good?"] = Answer("Yes", Finish.STOP, scores=scores)
    ((value,),) = con.sql("SELECT AI_SCORE('Good?', title) FROM films WHERE id = 1").fetchall()
    assert value == pytest.approx(0.6065306597126334)
    assert backend.asked[0].sampling.scored


def test_a_score_of_numbers_is_their_mean(con: Connection) -> None:
    scores = {"1": -1.3862943611198906, "5": -0.2876820724517809}
    ANSWERS["Stars?"] = Answer("5", Finish.STOP, scores=scores)
    query = "SELECT AI_SCORE('Stars?', title, labels := [1, 5]) FROM films WHERE id = 1"
    assert con.sql(query).fetchall() == [(pytest.approx(4.0),)]


def test_a_score_without_probabilities_is_an_error_of_the_row(con: Connection) -> None:
    with pytest.warns(UserWarning, match="no probabilities"):
        rows = con.sql("SELECT AI_SCORE('Good?', title) FROM films WHERE id = 1").fetchall()
    assert rows == [(None,)]


def _by_length(fields: Fields) -> Answer:
    likely = {"Dune": -0.1, "Alien": -0.5, "Amelie": -1.0, "Brazil": -2.0}.get(
        fields["title"], -3.0
    )
    return Answer("Yes", Finish.STOP, scores={"Yes": likely, "No": -9.0})


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
    con.database.execute(f"CREATE TABLE ranked AS {_values(con, ranks)}")
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


@pytest.mark.parametrize(
    "call",
    ["AI_AGG('What?', title)", "AI_AGG(title, 'What?')", "AI_AGG(title, instruction := 'What?')"],
)
def test_a_group_is_asked_about_as_a_whole(call: str, con: Connection, backend) -> None:
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


def test_a_group_of_several_fields_is_a_list_of_objects(con: Connection, backend) -> None:
    con.sql("SELECT AI_AGG('What?', title, stars) FROM films WHERE id < 3")
    assert backend.asked[0].fields == [
        {"title": "Alien", "stars": 4.5},
        {"title": "Amelie", "stars": 4.0},
    ]


def test_a_summary_is_an_aggregate_without_a_question(con: Connection, backend) -> None:
    con.sql("SELECT AI_SUMMARIZE_AGG(title) FROM films WHERE id < 3")
    assert backend.asked[0].query == "Summarize the texts."
    assert backend.asked[0].fields == ["Alien", "Amelie"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("AI_FILTER()", r"has no prompt. Expected AI_FILTER\('prompt'"),
        ("AI_FILTER('x', title, labels := ['a'])", "option 'labels' is not known"),
        ("AI_FILTER(MODULE(title))", "must be a field"),
        ("AI_CLASSIFY(title)", "has no labels"),
        ("AI_CLASSIFY(['a', 'b'])", "has no field"),
        ("AI_CLASSIFY(title, ['a'], {'output_mode': 'many'})", "expected 'single' or 'multi'"),
        ("AI_EXTRACT(title)", "does not say what to extract"),
        ("AI_EXTRACT(title, 'what ever')", "is not a type"),
        ("AI_EXTRACT(title, 'a INTEGER', stop := 'x')", "sets stop"),
        ("AI_COMPLETE('x', title, output := 'a INTEGER', labels := ['b'])", "labels and output"),
        ("AI_AGG(title)", "has no question"),
        ("AI_AGG('x')", "has no field"),
        ("AI_AGG('x', ORDER BY id)", "has no field"),
        ("AI_RANK(title)", "has no criterion"),
        ("LLM(PROMPT('{1}', title))", "counted from 0"),
        ("LLM(PROMPT('{0}', title), genre)", "fields after PROMPT"),
        ("LLM(PROMPT(title))", "needs a text first"),
        ("AI_FILTER('x', title) OVER ()", "does not take OVER"),
        ("AI_FILTER('x', title) FILTER (WHERE true)", "does not take FILTER"),
        ("AI_AGG('x', title) OVER ()", "does not take OVER"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_asked(call, message, con, backend) -> None:
    with pytest.raises(QueryError, match=message):
        con.sql(f"SELECT {call} FROM films")
    assert backend.asked == []


def test_a_type_that_the_model_cannot_follow_is_refused_before_the_first_call(con, backend) -> None:
    def refuse(sampling: Sampling) -> None:
        if sampling.schema is not None:
            raise ConfigError("This schema cannot be followed.")

    backend.check = refuse
    with pytest.raises(ConfigError, match="cannot be followed"):
        con.sql("SELECT AI_EXTRACT(title, 'n INTEGER') FROM films WHERE AI_FILTER('Good?', title)")
    assert backend.asked == []


def test_one_column_under_two_names_is_two_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('x', title AS a, title AS b, title, title) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"a": "Alien", "b": "Alien", "title": "Alien"}


def test_names_hold_in_a_subquery_that_depends_on_a_row(con, backend) -> None:
    con.sql(
        "SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id "
        "AND LLM('x', r.text AS a, f.id AS b, f.title) = 'Yes') AND f.id = 6"
    )
    assert backend.asked[0].fields == {"a": "long", "b": 6, "title": "Dune"}


def test_fields_in_braces_have_their_table_where_names_would_clash(con, backend) -> None:
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


def test_an_alias_as_a_field_keeps_the_name_that_it_is_given(con, backend) -> None:
    con.sql("SELECT upper(title) AS k, LLM('x', k AS name) FROM films WHERE id = 1")
    assert backend.asked[0].fields == {"name": "ALIEN"}


def test_a_failed_answer_skips_all_calls_that_read_it(con: Connection, backend) -> None:
    ANSWERS["one"] = Answer(None, Finish.ERROR, "out of spice")
    with pytest.warns(PartialResultWarning, match="out of spice"):
        result = con.sql("SELECT LLM('three', LLM('two', LLM('one', id))) FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    assert [asked.query for asked in backend.asked] == ["one"]
    assert len(result.errors) == 1


def test_half_a_character_in_json_does_not_end_the_query(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"answer": "\\ud800"}'
    rows = con.sql("SELECT AI_EXTRACT(title, 'JSON') FROM films WHERE id = 1").fetchall()
    assert rows == [('"?"',)]


def test_a_label_that_the_model_may_not_give_is_an_error_of_the_row(con: Connection) -> None:
    ANSWERS["How is it?"] = "fine"
    with pytest.warns(PartialResultWarning, match="none of the labels 'good', 'bad'"):
        rows = con.sql(
            "SELECT AI_CLASSIFY('How is it?', title, ['good', 'bad']) FROM films LIMIT 1"
        )
    assert rows.fetchall() == [(None,)]


def test_white_space_around_a_label_is_no_part_of_it(con: Connection) -> None:
    ANSWERS["Good?"] = " Yes\n"
    assert con.sql("SELECT AI_FILTER('Good?', title) FROM films LIMIT 1").fetchall() == [(True,)]


@pytest.mark.parametrize("scores", [{"No": -0.5}, {"Yes": float("nan"), "No": 0.0}])
def test_odd_probabilities_do_not_end_the_query(scores: dict[str, float], con, backend) -> None:
    ANSWERS["Good?"] = Answer("Yes", Finish.STOP, scores=scores)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialResultWarning)
        ((value,),) = con.sql("SELECT AI_SCORE('Good?', title) FROM films LIMIT 1").fetchall()
    assert value in (0.0, None)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT id FROM films WHERE AI_RANK('x', title) < 3", "WHERE"),
        ("SELECT max(AI_RANK('x', title)) FROM films", "an aggregate"),
        (
            "SELECT AI_RANK('x', title) AS r, count(*) FROM films GROUP BY AI_RANK('x', title)",
            "GROUP",
        ),
    ],
)
def test_a_rank_where_rows_have_none_yet_names_a_way(query: str, place: str, con, backend) -> None:
    with pytest.raises(QueryError, match=f"is in {place}.*QUALIFY"):
        con.sql(query)
    assert backend.asked == []


def test_a_rank_takes_its_arguments_in_both_orders(con: Connection) -> None:
    ANSWERS["Is this a good match for: sandy?"] = _by_length
    query = "SELECT AI_RANK(title, 'sandy') FROM films QUALIFY AI_RANK(title, 'sandy') = 1"
    result = con.sql(query)
    assert result.fetchall() == [(1,)]
    assert result.columns == ["ai_rank(title, 'sandy')"]


def test_a_macro_can_name_its_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("CREATE MACRO good(x) AS AI_FILTER('Good?', x AS film)")
    con.sql("SELECT id FROM films WHERE good(title)")
    assert backend.asked[0].fields.keys() == {"film"}


@pytest.mark.parametrize(
    "given",
    [
        "response_format => {'who': 'Who wrote it?'}",
        "response_format => ['who']",
        "response_format => {'type': 'json', 'schema': {'type': 'object', 'properties': "
        "{'who': {'type': 'string'}}}}",
        "response_format => {'type': 'json_schema', 'json_schema': {'name': 'n', 'schema': "
        "{'type': 'object', 'properties': {'who': {'type': 'string'}}}}}",
    ],
)
def test_a_response_format_has_the_forms_of_other_systems(given: str, con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"who": "Ann"}'
    query = f"SELECT AI_EXTRACT(title, {given}) FROM films LIMIT 1"
    assert con.sql(query).fetchall() == [({"who": "Ann"},)]


def test_a_class_without_a_schema_is_an_error_of_ours(con: Connection) -> None:
    class Broken:
        @classmethod
        def model_json_schema(cls) -> dict[str, object]:
            raise ValueError("no schema today")

    with pytest.raises(QueryError, match="no schema today"):
        con.sql("SELECT AI_EXTRACT(title, $shape) FROM films", {"shape": Broken})


def test_a_list_of_questions_may_be_a_parameter(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"who": "Ann"}'
    query = "SELECT AI_EXTRACT(title, $1) FROM films LIMIT 1"
    assert con.sql(query, [["who"]]).fetchall() == [({"who": "Ann"},)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("INSERT INTO empty SELECT 1, 'a' RETURNING LLM('x', text)", "RETURNING"),
        ("SELECT PROMPT('Is {0} late?', title) FROM films", "only an argument"),
        ("SELECT MODULE(title) FROM films", "only an argument"),
    ],
)
def test_a_function_where_it_cannot_be_is_told(query: str, message: str, con: Connection) -> None:
    with pytest.raises(QueryError, match=message):
        con.sql(query)


def test_a_call_without_columns_is_no_key_of_group_by_all(con: Connection) -> None:
    query = "SELECT LLM('Hi') AS k, count(*) FROM films WHERE false GROUP BY ALL"
    assert con.sql(query).fetchall() == [("No", 0)]


@pytest.mark.parametrize(
    "call",
    [
        "AI_COMPLETE('llama3.1-70b', title)",
        "AI_COMPLETE('claude-4-sonnet', 'Summarize: ' || title)",
        "AI_COMPLETE('claude-4-sonnet', PROMPT('Summarize: {0}', title))",
        "AI_COMPLETE(model => 'claude-4-sonnet', prompt => 'Summarize: ' || title)",
    ],
)
def test_a_model_is_not_taken_for_a_question(call: str, con: Connection, backend) -> None:
    with pytest.raises(QueryError, match="The model is that of the connection"):
        con.sql(f"SELECT {call} FROM films")
    assert backend.asked == []


@pytest.mark.parametrize(
    "call",
    [
        "LLM(title, 'Summarize')",
        "AI_COMPLETE(title, 'Summarize')",
        "AI_COMPLETE(prompt => 'Summarize', text => title)",
        "AI_COMPLETE('Summarize', title, model_parameters => {'temperature': 0})",
    ],
)
def test_a_text_is_the_prompt_wherever_it_stands(call: str, con: Connection, backend) -> None:
    con.sql(f"SELECT {call} FROM films WHERE id = 1")
    assert backend.asked[0].query == "Summarize"
    assert backend.asked[0].fields == {"title": "Alien"}


@pytest.mark.parametrize(
    "call",
    [
        "AI_AGG(DISTINCT 'What?', title ORDER BY title)",
        "AI_AGG(title, 'What?' ORDER BY title)",
        "AI_AGG('What?', title ORDER BY title)",
    ],
)
def test_clauses_of_an_aggregate_go_together(call: str, con: Connection, backend) -> None:
    con.sql(f"SELECT {call} FROM films")
    assert backend.asked[0].query == "What?"
    assert backend.asked[0].fields == sorted(backend.asked[0].fields)


@pytest.mark.parametrize(
    "call",
    [
        "AI_AGG('What of {genre}?', title)",
        "LLM(PROMPT('Is {0} a {genre}?', title))",
        "AI_FILTER('Is { nosuch } ok?', title)",
    ],
)
def test_names_in_braces_that_are_not_sent_are_warned_about(call: str, con, backend) -> None:
    with pytest.warns(PromptWarning):
        con.sql(f"SELECT {call} FROM films WHERE id < 3")


def test_labels_in_double_quotes_are_told(con: Connection) -> None:
    with pytest.raises(QueryError, match="single quotes"):
        con.sql('SELECT AI_CLASSIFY(title, ["good", "bad"]) FROM films')


def test_braces_in_a_semi_join_may_name_columns_of_both_tables(con, backend) -> None:
    con.sql(
        "SELECT f.id FROM films f SEMI JOIN reviews r "
        "ON f.id = r.film AND AI_FILTER('Is {r.text} about {f.title}?') ORDER BY f.id"
    )
    assert {frozenset(asked.fields) for asked in backend.asked} == {
        frozenset({"r.text", "f.title"})
    }


def test_places_count_fields_with_and_without_names(con: Connection, backend) -> None:
    con.sql("SELECT LLM('Is {0} of {1}?', id + 1, title AS name) FROM films WHERE id = 1")
    assert backend.asked[0].query == 'Is "id" of "name"?'


def test_a_summary_may_have_an_instruction(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT AI_SUMMARIZE_AGG(title, instruction := 'Be brief.') FROM films")
    assert backend.asked[0].query == "Be brief."


@pytest.mark.parametrize(
    ("condition", "remedy"),
    [
        ("AI_FILTER('Good?', title) = 'maybe'", "of type BOOLEAN. Use it as a condition"),
        ("(AI_FILTER('Good?', title)) IN ('no', 'maybe')", "compared with 'maybe'"),
        ("'high' < AI_SCORE('Good?', title)", "of type DOUBLE. Compare it with a number"),
        ("AI_EXTRACT(title, 'DATE') BETWEEN '2024-01-01' AND 'today?'", "'today.', but it is of"),
    ],
)
def test_a_comparison_with_a_text_of_another_type_is_refused(condition, remedy, con, backend):
    with pytest.raises(QueryError, match=remedy):
        con.sql(f"SELECT id FROM films WHERE {condition}")
    assert not backend.asked


def test_texts_that_duckdb_reads_as_the_type_are_compared(con: Connection) -> None:
    query = "SELECT id FROM films WHERE AI_FILTER('Is it good?', title) = 'yes' ORDER BY id"
    assert con.sql(query).fetchall() == [(1,), (2,), (4,)]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("AI_CLASSIFY(title, ['a', 'b']) = 3", "DOUBLE"),
        ("avg(AI_CLASSIFY(title, ['a', 'b']))", "DOUBLE"),
        ("AI_CLASSIFY(title, ['a', 'b'])::DATE", "DATE"),
        ("LLM('Good?', title, labels := ['yes', 'no']) + 1", "DOUBLE"),
    ],
)
def test_a_type_that_no_label_has_is_refused(expression, kind, con, backend) -> None:
    with pytest.raises(QueryError, match=f"is read as {kind}, but none of its labels is a"):
        con.sql(f"SELECT {expression} FROM films")
    assert not backend.asked


def test_labels_of_which_some_are_numbers_are_read(con: Connection) -> None:
    ANSWERS["Classify the data."] = "7"
    query = "SELECT sum(AI_CLASSIFY(title, ['7', 'none'])::INTEGER) FROM films WHERE id < 3"
    assert con.sql(query).fetchall() == [(14,)]


@pytest.mark.parametrize(
    "call",
    [
        "AI_FILTER('Good?', 'title')",
        "AI_CLASSIFY('title', ['a', 'b'])",
        "LLM('Good?', id, 'title')",
    ],
)
def test_a_text_that_is_the_name_of_a_column_gives_a_warning(call, con) -> None:
    ANSWERS["title"] = "a"
    with pytest.warns(PromptWarning, match="has the text 'title'.* write title without"):
        con.sql(f"SELECT {call} FROM films")


def test_other_texts_as_fields_give_none(con: Connection) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PromptWarning)
        con.sql("SELECT AI_FILTER('Good?', 'a title'), LLM('Good?', 'film') FROM films")


def test_a_summary_takes_no_question(con: Connection) -> None:
    with pytest.raises(QueryError, match="write AI_AGG\\('In a line', column\\)"):
        con.sql("SELECT AI_SUMMARIZE_AGG(title, 'In a line') FROM films")


def test_a_prompt_with_a_hyphen_is_not_taken_for_a_model(con, backend) -> None:
    con.sql("SELECT AI_COMPLETE('follow-up', title) FROM films WHERE id = 1")
    assert backend.asked[0].query == "follow-up"


def test_a_row_error_shows_the_call_as_written(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"a": "x"}'
    with pytest.warns(PartialResultWarning):
        errors = con.sql("SELECT AI_EXTRACT(title, 'a VARCHAR').a = 5 FROM films").errors
    assert errors[0].error.startswith("AI_EXTRACT(title, 'a VARCHAR').a is 'x'; the query needs")


@pytest.mark.parametrize("head", ["EXPLAIN", "EXPLAIN ANALYZE", "/* all */ EXPLAIN"])
def test_names_of_fields_may_follow_explain(head: str, con: Connection) -> None:
    stages = con.sql(f"{head} SELECT LLM('Good?', stars * 2 AS total) FROM films").arrow()
    assert stages["fields"].to_pylist() == ["total"]


def test_names_of_fields_may_be_in_a_prepared_statement(con, backend) -> None:
    con.sql("PREPARE p AS SELECT LLM('Good?', stars * 2 AS total) FROM films; EXECUTE p")
    assert list(backend.asked[0].fields) == ["total"]


@pytest.mark.parametrize(
    "call",
    [
        "AI_AGG(DISTINCT 'Which?', genre, max_tokens := 9)",
        "AI_AGG(DISTINCT genre, instruction := 'Which?')",
        "AI_AGG(DISTINCT 'Which?', genre ORDER BY genre)",
        "AI_SUMMARIZE_AGG(DISTINCT genre, instruction := 'Which?')",
    ],
)
def test_distinct_may_precede_all_arguments(call: str, con, backend) -> None:
    con.sql(f"SELECT {call} FROM films")
    texts = backend.asked[0].fields
    assert backend.asked[0].query == "Which?"
    assert len(texts) == len(set(texts)) > 1


def test_distinct_arguments_may_have_names(con, backend) -> None:
    con.sql("SELECT AI_AGG(DISTINCT 'Which?', upper(genre) AS kind, id AS number) FROM films")
    assert set(backend.asked[0].fields[0]) == {"kind", "number"}


@pytest.mark.parametrize("body", ["upper(x)", "LLM('inner', x)", "x || LLM('inner', x)"])
def test_a_field_that_a_macro_gives_keeps_its_name(body: str, con, backend) -> None:
    con.sql(f"CREATE MACRO m(x) AS {body}")
    con.sql("SELECT LLM('Is {f} good?', m(title) AS f) FROM films WHERE id = 1")
    assert backend.asked[-1].query == 'Is "f" good?'
    assert list(backend.asked[-1].fields) == ["f"]


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        ("AI_IF('Good?', title)", "There is no function AI_IF here. Write AI_FILTER"),
        ("llm_reduce('Which?', title)", "There is no function LLM_REDUCE here. Write AI_AGG"),
        ("AI_CLASIFY(title, ['a'])", "Did you mean 'AI_CLASSIFY'"),
    ],
)
def test_names_of_other_systems_are_told_by_what_they_are_called_here(call, remedy, con) -> None:
    with pytest.raises(QueryError, match=remedy):
        con.sql(f"SELECT {call} FROM films")
