"""Functions of a row: what each asks, and what its value is."""

from __future__ import annotations

import json
import warnings
from decimal import Decimal

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend
from tests.sql.functions.replies import ANSWERS


def test_a_filter_is_true_or_false(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT id FROM films WHERE AI_FILTER('Is it good?', title) ORDER BY id"
    assert con.sql(query).fetchall() == [(1,), (2,), (4,)]
    assert backend.asked[0].query == "Is it good?\nAnswer Yes or No."
    assert backend.asked[0].sampling.labels == ("Yes", "No")


def test_a_filter_that_says_how_to_answer_is_sent_as_it_is(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT AI_FILTER('Good? Answer yes or no.', title) FROM films")
    assert backend.asked[0].query == "Good? Answer yes or no."


def test_a_filter_is_a_value_like_any_other(con: Connection) -> None:
    query = """
        SELECT count(*) FILTER (WHERE AI_FILTER('Good?', title)), bool_or(AI_FILTER('Good?', title))
        FROM films WHERE NOT AI_FILTER('Good?', title) OR id = 1"""
    assert con.sql(query).fetchall() == [(1, True)]


def test_a_class_is_one_of_the_labels_in_any_order_of_arguments(
    con: Connection, backend: FakeBackend
) -> None:
    for call in [
        "AI_CLASSIFY(title, ['good', 'bad'], instruction := 'How is it?')",
        "AI_CLASSIFY('How is it?', title, ['good', 'bad'])",
        "AI_CLASSIFY(title, ['good', 'bad'], {'task_description': 'How is it?'})",
        "AI_CLASSIFY('How is it?', title, labels := ['good', 'bad'])",
    ]:
        backend.asked.clear()
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


def test_several_labels_are_a_list(con: Connection) -> None:
    for option in ["multi := true", "{'output_mode': 'multi'}"]:
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


def test_types_come_in_several_forms(con: Connection) -> None:
    for type_, text, value in [
        ("'INTEGER'", '{"answer": 7}', 7),
        ("{'who': 'Who wrote it?'}", '{"who": "Ann"}', {"who": "Ann"}),
        ("['who', 'when']", '{"who": "Ann", "when": null}', {"who": "Ann", "when": None}),
        (
            """'{"type": "object", "properties": {"n": {"type": "integer"}}}'""",
            '{"n": 3}',
            {"n": 3},
        ),
        ("'h HUGEINT'", '{"h": 170141183460469231731687303715884105727}', {"h": 2**127 - 1}),
    ]:
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


def test_a_score_is_the_probability_of_the_first_label(
    con: Connection, backend: FakeBackend
) -> None:
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


def test_a_failed_answer_skips_all_calls_that_read_it(
    con: Connection, backend: FakeBackend
) -> None:
    ANSWERS["one"] = Answer(None, Finish.ERROR, "out of spice")
    with pytest.warns(PartialResultWarning, match="out of spice"):
        result = con.sql("SELECT LLM('three', LLM('two', LLM('one', id))) FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    assert [asked.query for asked in backend.asked] == ["one"]
    assert len(result.errors) == 1


def test_half_a_character_in_json_does_not_end_the_query(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"answer": "\\ud800"}'
    rows = con.sql("SELECT AI_EXTRACT(title, 'JSON') FROM films WHERE id = 1").fetchall()
    assert rows == [('"\ufffd"',)]


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


def test_odd_probabilities_do_not_end_the_query(con: Connection, backend: FakeBackend) -> None:
    for scores in [{"No": -0.5}, {"Yes": float("nan"), "No": 0.0}]:
        ANSWERS["Good?"] = Answer("Yes", Finish.STOP, scores=scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)
            ((value,),) = con.sql("SELECT AI_SCORE('Good?', title) FROM films LIMIT 1").fetchall()
        assert value in (0.0, None)


def test_a_response_format_has_the_forms_of_other_systems(con: Connection) -> None:
    for given in [
        "response_format => {'who': 'Who wrote it?'}",
        "response_format => ['who']",
        "response_format => {'type': 'json', 'schema': {'type': 'object', 'properties': "
        "{'who': {'type': 'string'}}}}",
        "response_format => {'type': 'json_schema', 'json_schema': {'name': 'n', 'schema': "
        "{'type': 'object', 'properties': {'who': {'type': 'string'}}}}}",
    ]:
        ANSWERS["Extract from the data what is asked for."] = '{"who": "Ann"}'
        query = f"SELECT AI_EXTRACT(title, {given}) FROM films LIMIT 1"
        assert con.sql(query).fetchall() == [({"who": "Ann"},)]


def test_a_list_of_questions_may_be_a_parameter(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"who": "Ann"}'
    query = "SELECT AI_EXTRACT(title, $1) FROM films LIMIT 1"
    assert con.sql(query, [["who"]]).fetchall() == [({"who": "Ann"},)]


def test_texts_that_duckdb_reads_as_the_type_are_compared(con: Connection) -> None:
    query = "SELECT id FROM films WHERE AI_FILTER('Is it good?', title) = 'yes' ORDER BY id"
    assert con.sql(query).fetchall() == [(1,), (2,), (4,)]


def test_labels_of_which_some_are_numbers_are_read(con: Connection) -> None:
    ANSWERS["Classify the data."] = "7"
    query = "SELECT sum(AI_CLASSIFY(title, ['7', 'none'])::INTEGER) FROM films WHERE id < 3"
    assert con.sql(query).fetchall() == [(14,)]


def test_a_row_error_shows_the_call_as_written(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"a": "x"}'
    with pytest.warns(PartialResultWarning):
        errors = con.sql("SELECT AI_EXTRACT(title, 'a VARCHAR').a = 5 FROM films").errors
    assert errors[0].error.startswith("AI_EXTRACT(title, 'a VARCHAR').a is 'x'; the query needs")


def test_a_schema_as_a_parameter_is_a_type(con: Connection) -> None:
    for schema, value in [
        ({"type": "integer"}, 7),
        ({"type": ["integer", "null"]}, 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ({"enum": ["7", "8"]}, "7"),
        ({"type": "array", "items": {"type": "integer"}}, None),
    ]:
        ANSWERS["Extract from the data what is asked for."] = '{"answer": 7}'
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)
            result = con.sql("SELECT AI_EXTRACT(title, $t) FROM films WHERE id = 1", {"t": schema})
        assert result.fetchall() == [(value,)]


def test_words_of_a_schema_may_be_questions(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"type": "a", "schema": "b"}'
    query = "SELECT AI_EXTRACT(title, {'type': 'Which?', 'schema': 'What?'}) FROM films LIMIT 1"
    assert con.sql(query).fetchall() == [({"type": "a", "schema": "b"},)]


def test_null_is_a_value_where_a_schema_allows_it(con: Connection) -> None:
    ANSWERS["Extract from the data what is asked for."] = '{"answer": null}'
    schema = '{"type": ["integer", "null"]}'
    result = con.sql(f"SELECT AI_EXTRACT(title, '{schema}') FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    assert not result.errors
