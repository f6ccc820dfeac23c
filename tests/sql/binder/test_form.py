"""`form := 'text'`, or `form=`: the compact form, for one call or for all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import relquery as rq
from relquery.backends.base import Backend, Limits
from relquery.backends.load import default_form
from relquery.config import PromptForm
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, QueryError
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling
from tests.cases import values
from tests.sql.fakes import text_of


class Heard(Backend):
    """Keeps the texts of prompts; answers with the last line of each."""

    name = "heard"
    limits = Limits(has_modules=True)

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.samplings: list[Sampling] = []

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        self.samplings.append(sampling)
        for at, prompt in enumerate(prompts):
            self.texts.append(said(prompt))
            text = sampling.labels[0] if sampling.labels else self.texts[-1].split("\n")[-1]
            text = '{"a": 1}' if sampling.schema else text
            scores = {"Yes": -0.1, "No": -2.3} if sampling.scored else None
            yield at, Answer(text, Finish.STOP, scores=scores)

    def close(self) -> None:
        pass


def said(prompt: Prompt) -> str:
    return "".join(text_of(span) for span in prompt if span.role is Role.USER)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def con(heard: Heard) -> Iterator[Connection]:
    with connect(heard, order="original") as connection:
        connection.sql(
            "CREATE TABLE films AS FROM (VALUES (1, 'Alien', 'horror', ['a', 'b: c']), "
            "(2, 'Dune', NULL, ['b: c'])) t(id, title, genre, tags)"
        )
        yield connection


@pytest.mark.parametrize(("call", "text"), values(__file__, "text.txt"))
def test_a_call_is_sent_as_text(call: str, text: str, con: Connection, heard: Heard) -> None:
    con.sql(f"SELECT {call} FROM films WHERE id = 1", form="text")
    assert heard.texts[0] == text


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("AI_FILTER('Loud?', title)", True),
        ("AI_CLASSIFY(title, ['a', 'b'])", True),
        ("LLM('Yes or no?', title, labels := ['Yes', 'No'])", True),
        ("LLM('Which?', title, labels := ['Yes', 'No'])", False),
        ("AI_SCORE('Loud?', title)", False),
        ("LLM('Yes or no?', title, labels := ['Yes', 'No'], form := 'json')", False),
    ],
)
def test_it_is_left_to_a_prompt_that_names_all_labels_to_tell_them(
    call: str, told: bool, con: Connection, heard: Heard
) -> None:
    con.sql(f"SELECT {call} FROM films WHERE id = 1", form="text")
    assert [sampling.told for sampling in heard.samplings] == [told]


def test_a_keyword_of_the_connection_or_query_is_for_calls_that_do_not_say(heard: Heard) -> None:
    query = "SELECT LLM('a', x), LLM('b', x, form := 'json') FROM (SELECT 'text' AS x)"
    with connect(heard, form="text") as con:
        con.sql(query)
        con.sql(query, form="json")
    with connect(heard) as con:
        con.sql(query, form="text")
    as_text, as_json = "\n\ntext", 'data:\n{\n"x": "text"\n}'
    assert [text.endswith(as_text) for text in heard.texts] == [True, False, False, True, False]
    assert heard.texts[2].endswith(as_json)


def test_the_forms_have_answers_of_their_own_in_the_ledger(con: Connection, heard: Heard) -> None:
    query = "SELECT AI_FILTER('Loud?', title) FROM films"
    for form in ("json", "text", "json", "text"):
        con.sql(query, form=form)
    assert len(heard.texts) == 4
    assert con.explain(query, form="text").calls[0].calls == 0


def test_a_filter_and_the_same_prompt_in_full_are_one_request(
    con: Connection, heard: Heard
) -> None:
    prompt = "'Loud?\nAnswer Yes or No.'"
    con.sql(f"SELECT AI_FILTER('Loud?', title), AI_SCORE({prompt}, title) FROM films")
    assert len(heard.texts) == 2


def test_a_group_is_a_line_for_each_item(con: Connection, heard: Heard) -> None:
    con.sql(
        "SELECT AI_AGG('Sum up.', x, form := 'text') FROM (VALUES ('one'), ('"
        "two\nlines'), ('')) t(x)"
    )
    assert heard.texts == ['Sum up.\n\none\ntwo\n lines\n""']


@pytest.mark.usefixtures("users_form")
@pytest.mark.parametrize(
    ("model", "form"),
    [
        ("demo", "json"),
        ("demo+adapter", "json"),
        ("relquery:demo@127.0.0.1:8000", "json"),
        ("demonstration", "text"),
        ("openai:gpt-5.4-mini", "text"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "text"),
    ],
)
def test_prompts_are_text_but_for_the_model_that_knows_json_alone(model: str, form: str) -> None:
    assert default_form(model) == form


@pytest.mark.usefixtures("users_form")
def test_a_connection_takes_the_default_of_its_model(heard: Heard) -> None:
    with connect(heard) as con, connect(heard, form="json") as other:
        assert (con.config.form, other.config.form) == ("text", "json")
        con.sql("SELECT AI_FILTER('Loud?', 'BANG')")
    assert heard.texts == ["Loud?\nYes or No?\n\nBANG"]


def test_explain_and_preview_count_the_form_that_is_sent(heard: Heard, con: Connection) -> None:
    query = "SELECT LLM('Loud?', title, genre) FROM films"
    forms: list[PromptForm] = ["json", "text"]
    counts = [con.explain(query, form=form).calls[0].prompt_tokens for form in forms]
    as_json, as_text = (each for each in counts if each is not None)
    assert as_text < as_json
    con.preview(query, form="text", rows=1)
    assert heard.texts[0].startswith("Loud?\n\ntitle: ")


def test_another_form_is_refused_before_the_first_call(con: Connection, heard: Heard) -> None:
    for call, message in [
        ("LLM('a', title, form := 'texts')", "Did you mean 'text'"),
        ("LLM('a', title, form := 3)", "expected 'json' or 'text'"),
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(f"SELECT {call} FROM films")
        assert not heard.texts


def test_a_join_with_candidates_is_json_only(con: Connection, heard: Heard) -> None:
    join = "AI_FILTER('Is {a.title} {b.genre}?', classify := true, form := 'text')"
    with pytest.raises(QueryError, match="Remove form or classify"):
        con.sql(f"SELECT a.id FROM films a JOIN films b ON {join}")


def test_connect_names_the_forms() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'text'"):
        connect("demo", form="texts")  # type: ignore[arg-type]


def test_frames_take_the_form_of_a_verb_and_of_a_run(con: Connection, heard: Heard) -> None:
    frame = rq.frame([{"word": "one"}], con)
    frame.sem_map("Shout {word}", "loud", form="text").collect()
    frame.sem_map("Whisper {word}", "quiet").collect(form="text")
    assert [text.endswith("\n\none") for text in heard.texts] == [True, True]


@pytest.mark.long
def test_the_demo_model_answers_to_text(tmp_path: Path) -> None:
    with connect("demo", ledger=tmp_path / "run.db") as con:
        con.register("movies", rq.demo_table("movies"))
        query = """SELECT movietitle, AI_FILTER('Is the review positive? Answer Yes or No.',
                   movies.*) AS good FROM movies WHERE year > 2018"""
        as_json, as_text = (con.sql(query, form=form) for form in ("json", "text"))
    assert len(as_text) == len(as_json)
    assert not as_text.errors
    assert {type(row[1]) for row in as_text.fetchall()} == {bool}
    assert as_text.report.calls == as_json.report.calls
    assert as_text.report.prompt_tokens < 0.8 * as_json.report.prompt_tokens
    assert json.dumps(as_text.report.to_dict())
