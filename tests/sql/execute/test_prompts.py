"""What the model is sent: appendix C of paper 000, fields as JSON, every character kept."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, PromptWarning, QueryError
from relquery.prompt import Role, Sampling, Span
from relquery.sql.inputs.prompt import SYSTEM
from tests.sql.fakes import FakeBackend

NASTY = 'it\'s "quoted" { braces } \\ back\\nslash\nnewline \t 🎉 é \0 nul \u2028 end'


def test_a_prompt_is_system_text_query_and_fields_as_json(con: Connection, backend: FakeBackend):
    con.sql("SELECT LLM('Is it good?', title, stars, seen) FROM films WHERE id = 1")
    system, *user = backend.asked[0].prompt
    assert system == Span(SYSTEM, Role.SYSTEM)
    assert "".join(span.content for span in user) == (
        "Answer the below query:\nIs it good?\n\nGiven the following data:\n"
        '{\n"title": "Alien",\n"stars": 4.5,\n"seen": true\n}'
    )


def test_equal_pieces_of_different_prompts_are_one_object(con, backend):
    con.sql("SELECT LLM('up', genre, id) FROM films WHERE genre = 'horror'", order="original")
    first, second = (request.prompt for request in backend.asked)
    assert first[0] is second[0]
    assert first[2] is second[2]


def test_values_of_every_type_are_written_readably(con, backend):
    con.sql(
        """SELECT LLM('x', t.*) FROM (SELECT
            NULL AS nothing, true AS yes, 7 AS whole, 170141183460469231731687303715884105727 AS
            huge, 0.1::DOUBLE AS real, 0.1::FLOAT AS short, 'nan'::DOUBLE AS no_number,
            1.50::DECIMAL(5, 2) AS price, DATE '2024-02-29' AS day,
            TIMESTAMP '2024-02-29 12:30:00' AS moment, [1, 2] AS list,
            {'a': 'x"y', 'b': NULL} AS struct, '{"j": [1]}'::JSON AS json, 'ab'::BLOB AS bytes,
            '00000000-0000-0000-0000-000000000001'::UUID AS uuid, MAP {'k': 1} AS map,
            'small'::ENUM('small', 'big') AS size, INTERVAL 3 DAY AS span) t"""
    )
    assert backend.asked[0].fields == {
        "nothing": None,
        "yes": True,
        "whole": 7,
        "huge": 2**127 - 1,
        "real": 0.1,
        "short": 0.1,
        "no_number": "nan",
        "price": "1.50",
        "day": "2024-02-29",
        "moment": "2024-02-29 12:30:00",
        "list": [1, 2],
        "struct": {"a": 'x"y', "b": None},
        "json": {"j": [1]},
        "bytes": "ab",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "map": {"k": 1},
        "size": "small",
        "span": "3 days",
    }


def test_no_character_of_a_prompt_a_name_or_a_cell_is_lost(con, backend):
    con.register("nasty", pa.table({NASTY.replace("\0", ""): [NASTY]}))
    prompt = NASTY.replace("'", "''")
    with pytest.warns(PromptWarning, match="contains {braces}"):
        result = con.sql(f"SELECT LLM('{prompt}', nasty.*) FROM nasty")
    assert backend.asked[0].query == NASTY
    assert backend.asked[0].fields == {NASTY.replace("\0", ""): NASTY}
    assert result.fetchall() == [(NASTY,)]


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("'it''s'", "it's"),
        (r"e'a\nb\''", "a\nb'"),
        ("$$it's$$", "it's"),
        ("'one ' || 'two'", "one two"),
        ("('in' || (' parens'))", "in parens"),
        (r"'no \n escape'", r"no \n escape"),
    ],
)
def test_every_form_of_string_literal_is_a_prompt(literal, text, con, backend):
    con.sql(f"SELECT LLM({literal}, id) FROM films LIMIT 1")
    assert backend.asked[0].query == text


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("title, GENRE", ["title", "genre"]),
        ("f.title, r.id", ["title", "id"]),
        ("f.id, r.id, text", ["f.id", "r.id", "text"]),
        ("f.id, f.*", ["id", "title", "genre", "stars", "seen", "tags", "info"]),
        ("r.*, r.text, text", ["id", "film", "text"]),
        ("upper(title)", ["upper_title"]),
        ("f.id + 1, info.year", ["id", "year"]),
        ("r.* REPLACE (upper(text) AS text)", ["id", "film", "text"]),
        ("* EXCLUDE (tags, info, id)", ["title", "genre", "stars", "seen", "film", "text"]),
    ],
)
def test_fields_go_by_their_column_names(arguments, names, con, backend):
    con.sql(
        f"SELECT LLM('x', {arguments}) FROM films f JOIN reviews r ON f.id = r.film LIMIT 1",
        order="original",
    )
    assert list(backend.asked[0].fields) == names


def test_a_name_given_to_an_expression_in_a_subquery_is_the_fields_name(con, backend):
    con.sql('SELECT LLM(\'x\', "my field") FROM (SELECT id + 1 AS "my field" FROM films LIMIT 1)')
    assert backend.asked[0].fields == {"my field": 2}


def test_options_become_sampling(con, backend):
    backend.function = lambda query, fields: "Yes"
    con.sql(
        "SELECT LLM('x', id, max_tokens := 16, temperature => 0.5, top_p := 1, top_k := 5, "
        "seed := -3, stop := 'END', labels := ['Yes', 'No']) FROM films LIMIT 1"
    )
    assert backend.asked[0].sampling == Sampling(
        max_tokens=16, temperature=0.5, top_p=1, top_k=5, seed=-3, stop=("END",),
        labels=("Yes", "No"),
    )  # fmt: skip


def test_options_of_the_query_are_for_calls_that_do_not_say_otherwise(con, backend):
    con.sql("SELECT LLM('x', id), LLM('y', id, max_tokens := 9) FROM films LIMIT 1", max_tokens=5)
    assert [request.sampling.max_tokens for request in backend.asked] == [5, 9]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("LLM()", r"LLM\(\) has no prompt|llm\(\) has no prompt"),
        ("LLM(max_tokens := 3)", "has no prompt"),
        ('LLM("Is it good?", id)', "single quotes"),
        ("LLM(3, id)", "it must be text"),
        ("LLM(['a'], id)", "it must be text"),
        ("LLM('x', id, max_token := 3)", "Did you mean 'max_tokens'"),
        ("LLM('x', id, max_tokens := 'many')", "expected a whole number"),
        ("LLM('x', id, max_tokens := 1.5)", "expected a whole number"),
        ("LLM('x', id, labels := [1.5, 2])", "expected a string or a list of strings"),
        ("LLM('x', id, temperature := id)", "expected a number"),
        ("LLM('x', id, labels := [])", "Give at least one text"),
        ("LLM('x', id, labels := ['a'], labels := ['b'])", "sets labels twice"),
    ],
)
def test_a_malformed_call_is_an_error_that_says_what_is_expected(call, message, con, backend):
    with pytest.raises(QueryError, match=message):
        con.sql(f"SELECT {call} FROM films")
    assert backend.asked == []


def test_a_setting_out_of_range_is_a_config_error(con):
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        con.sql("SELECT LLM('x', id, max_tokens := 0) FROM films")


def test_a_date_column_of_arrow_is_readable(con, backend):
    con.register("days", pa.table({"day": [datetime.date(2024, 1, 2)]}))
    con.sql("SELECT LLM('x', day) FROM days")
    assert json.dumps(backend.asked[0].fields) == '{"day": "2024-01-02"}'


def test_labels_may_be_whole_numbers(con, backend):
    backend.function = lambda query, fields: "-3"
    con.sql("SELECT LLM('Rate', id, labels := [1, 2, -3]) FROM films")
    assert backend.asked[0].sampling.labels == ("1", "2", "-3")
