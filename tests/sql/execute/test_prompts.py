"""What the model is sent: appendix C of paper 000, fields as JSON, every character kept."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, PromptWarning, QueryError
from relquery.prompt import Role, Sampling, Span
from relquery.sql.inputs.prompt import SYSTEM
from tests.sql.fakes import FakeBackend

NASTY = 'it\'s "quoted" { braces } \\ back\\nslash\nnewline \t 🎉 é \0 nul \u2028 end'


def test_a_prompt_is_system_text_query_and_fields(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('Is it good?', title, stars, seen) FROM films WHERE id = 1")
    system, *user = backend.asked[0].prompt
    assert system == Span(SYSTEM, Role.SYSTEM)
    assert "".join(str(span.content) for span in user) == (
        "Answer the below query:\nIs it good?\n\nGiven the following data:\n"
        '{\n"title": "Alien",\n"stars": 4.5,\n"seen": true\n}'
    )


def test_equal_pieces_of_prompts_are_one_object(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('up', genre, id) FROM films WHERE genre = 'horror'", order="original")
    first, second = (request.prompt for request in backend.asked)
    assert first[0] is second[0]
    assert first[2] is second[2]


def test_values_of_every_type_are_readable(con: Connection, backend: FakeBackend) -> None:
    con.register("arrow", pa.table({"arrow_day": [datetime.date(2024, 1, 2)]}))
    con.sql(
        """SELECT LLM('x', t.*, arrow_day) FROM (SELECT
            NULL AS nothing, true AS yes, 7 AS whole, 170141183460469231731687303715884105727 AS
            huge, 0.1::DOUBLE AS real, 0.1::FLOAT AS short, 'nan'::DOUBLE AS no_number,
            1.50::DECIMAL(5, 2) AS price, DATE '2024-02-29' AS day,
            TIMESTAMP '2024-02-29 12:30:00' AS moment, [1, 2] AS list,
            {'a': 'x"y', 'b': NULL} AS struct, '{"j": [1]}'::JSON AS json, 'ab'::BLOB AS bytes,
            '00000000-0000-0000-0000-000000000001'::UUID AS uuid, MAP {'k': 1} AS map,
            'small'::ENUM('small', 'big') AS size, INTERVAL 3 DAY AS span) t, arrow"""
    )
    assert backend.asked[0].fields == {
        "nothing": None, "yes": True, "whole": 7, "huge": 2**127 - 1, "real": 0.1, "short": 0.1,
        "no_number": "nan", "price": "1.50", "day": "2024-02-29", "moment": "2024-02-29 12:30:00",
        "list": [1, 2], "struct": {"a": 'x"y', "b": None}, "json": {"j": [1]}, "bytes": "ab",
        "uuid": "00000000-0000-0000-0000-000000000001", "map": {"k": 1}, "size": "small",
        "span": "3 days", "arrow_day": "2024-01-02",
    }  # fmt: skip


def test_no_character_is_lost(con: Connection, backend: FakeBackend) -> None:
    con.register("nasty", pa.table({NASTY.replace("\0", ""): [NASTY]}))
    prompt = NASTY.replace("'", "''")
    with pytest.warns(PromptWarning, match="contains {braces}"):
        result = con.sql(f"SELECT LLM('{prompt}', nasty.*) FROM nasty")
    assert backend.asked[0].query == NASTY
    assert backend.asked[0].fields == {NASTY.replace("\0", ""): NASTY}
    assert result.fetchall() == [(NASTY,)]


def test_every_form_of_string_literal_is_a_prompt(con: Connection, backend: FakeBackend) -> None:
    literals = {
        "'it''s'": "it's",
        r"e'a\nb\''": "a\nb'",
        "$$it's$$": "it's",
        "'one ' || 'two'": "one two",
        "('in' || (' parens'))": "in parens",
        r"'no \n escape'": r"no \n escape",
    }
    result = con.sql(f"SELECT {', '.join(f'LLM({literal})' for literal in literals)}")
    assert result.fetchall() == [tuple(literals.values())]


def test_fields_go_by_their_column_names(con: Connection, backend: FakeBackend) -> None:
    cases = {
        "title, GENRE": ["title", "genre"],
        "f.title, r.id": ["title", "id"],
        "f.id, r.id, text": ["f.id", "r.id", "text"],
        "f.id, f.*": ["id", "title", "genre", "stars", "seen", "tags", "info"],
        "r.*, r.text, text": ["id", "film", "text"],
        "upper(title)": ["upper_title"],
        "f.id + 1, info.year": ["id", "year"],
        "r.* REPLACE (upper(text) AS text)": ["id", "film", "text"],
        "* EXCLUDE (tags, info, id)": ["title", "genre", "stars", "seen", "film", "text"],
        '"my field"': ["my field"],
    }
    calls = ", ".join(f"LLM('{at}', {arguments})" for at, arguments in enumerate(cases))
    named = '(SELECT id AS own, id + 1 AS "my field" FROM films) n ON n.own = f.id'
    rows = f"films f JOIN reviews r ON f.id = r.film JOIN {named}"
    calls = calls.replace("(tags, info, id)", '(tags, info, id, own, "my field")')
    con.sql(f"SELECT {calls} FROM {rows} LIMIT 1", order="original")
    asked = {request.query: list(request.fields) for request in backend.asked}
    assert asked == {str(at): names for at, names in enumerate(cases.values())}


def test_options_become_sampling(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: "-3" if query == "Rate" else "Yes"
    con.sql(
        "SELECT LLM('x', id, max_tokens := 16, temperature => 0.5, top_p := 1, top_k := 5, "
        "seed := -3, stop := 'END', labels := ['Yes', 'No']), LLM('y', id), "
        "LLM('Rate', id, labels := [1, 2, -3]) FROM films LIMIT 1", max_tokens=5
    )  # fmt: skip
    assert {request.query: request.sampling for request in backend.asked} == {
        "x": Sampling(
            max_tokens=16, temperature=0.5, top_p=1, top_k=5, seed=-3, stop=("END",),
            labels=("Yes", "No"),
        ),
        "y": Sampling(max_tokens=5),
        "Rate": Sampling(max_tokens=5, labels=("1", "2", "-3")),
    }  # fmt: skip


def test_a_malformed_call_says_what_is_expected(con: Connection, backend: FakeBackend) -> None:
    for call, message in [
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
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(f"SELECT {call} FROM films")
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        con.sql("SELECT LLM('x', id, max_tokens := 0) FROM films")
    assert backend.asked == []
