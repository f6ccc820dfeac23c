"""Calls that are refused before the first one is made, and what the message says."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError
from relquery.prompt import Sampling
from tests.sql.fakes import FakeBackend


def test_a_wrong_call_is_refused_before_anything_is_asked(
    con: Connection, backend: FakeBackend
) -> None:
    for call, message in [
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
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(f"SELECT {call} FROM films")
        assert backend.asked == []


def test_a_type_that_the_model_cannot_follow_is_refused_before_the_first_call(
    con: Connection, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sampling: Sampling) -> None:
        if sampling.schema is not None:
            raise ConfigError("This schema cannot be followed.")

    monkeypatch.setattr(backend, "check", refuse)
    with pytest.raises(ConfigError, match="cannot be followed"):
        con.sql("SELECT AI_EXTRACT(title, 'n INTEGER') FROM films WHERE AI_FILTER('Good?', title)")
    assert backend.asked == []


def test_a_class_without_a_schema_is_an_error_of_ours(con: Connection) -> None:
    class Broken:
        @classmethod
        def model_json_schema(cls) -> dict[str, object]:
            raise ValueError("no schema today")

    with pytest.raises(QueryError, match="no schema today"):
        con.sql("SELECT AI_EXTRACT(title, $shape) FROM films", {"shape": Broken})


def test_a_function_where_it_cannot_be_is_told(con: Connection) -> None:
    for query, message in [
        ("INSERT INTO empty SELECT 1, 'a' RETURNING LLM('x', text)", "RETURNING"),
        ("SELECT PROMPT('Is {0} late?', title) FROM films", "only an argument"),
        ("SELECT MODULE(title) FROM films", "only an argument"),
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(query)


def test_labels_in_double_quotes_are_told(con: Connection) -> None:
    with pytest.raises(QueryError, match="single quotes"):
        con.sql('SELECT AI_CLASSIFY(title, ["good", "bad"]) FROM films')


def test_a_comparison_with_a_text_of_another_type_is_refused(
    con: Connection, backend: FakeBackend
) -> None:
    for condition, remedy in [
        ("AI_FILTER('Good?', title) = 'maybe'", "of type BOOLEAN. Use it as a condition"),
        ("(AI_FILTER('Good?', title)) IN ('no', 'maybe')", "compared with 'maybe'"),
        ("'high' < AI_SCORE('Good?', title)", "of type DOUBLE. Compare it with a number"),
        ("AI_EXTRACT(title, 'DATE') BETWEEN '2024-01-01' AND 'today?'", "'today.', but it is of"),
    ]:
        with pytest.raises(QueryError, match=remedy):
            con.sql(f"SELECT id FROM films WHERE {condition}")
        assert not backend.asked


def test_a_type_that_no_label_has_is_refused(con: Connection, backend: FakeBackend) -> None:
    for expression, kind in [
        ("AI_CLASSIFY(title, ['a', 'b']) = 3", "DOUBLE"),
        ("avg(AI_CLASSIFY(title, ['a', 'b']))", "DOUBLE"),
        ("AI_CLASSIFY(title, ['a', 'b'])::DATE", "DATE"),
        ("LLM('Good?', title, labels := ['yes', 'no']) + 1", "DOUBLE"),
    ]:
        with pytest.raises(QueryError, match=f"is read as {kind}, but none of its labels is a"):
            con.sql(f"SELECT {expression} FROM films")
        assert not backend.asked


def test_names_of_other_systems_are_told_by_what_they_are_called_here(con: Connection) -> None:
    for call, remedy in [
        ("AI_IF('Good?', title)", "There is no function AI_IF here. Write AI_FILTER"),
        ("llm_reduce('Which?', title)", "There is no function LLM_REDUCE here. Write AI_AGG"),
        ("AI_CLASIFY(title, ['a'])", "Did you mean 'AI_CLASSIFY'"),
    ]:
        with pytest.raises(QueryError, match=remedy):
            con.sql(f"SELECT {call} FROM films")
