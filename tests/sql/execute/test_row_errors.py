"""A row that cannot be answered is NULL and listed; the others have their values."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, PromptTooLongError, RequestError
from relquery.prompt import Answer, Finish
from tests.sql.conftest import fails_for_dune, upper_or_length
from tests.sql.fakes import FakeBackend


def test_a_failed_request_is_null_and_listed_with_its_inputs(con: Connection, backend: FakeBackend):
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning, match=r"1 LLM value is missing.*out of spice"):
        result = con.sql("SELECT id, LLM('up', title) FROM films WHERE seen ORDER BY id")
    assert result.fetchall() == [(1, "ALIEN"), (3, "BRAZIL"), (6, None)]
    (error,) = result.errors
    assert (error.stage, error.row, error.inputs) == ("projection 1", 2, {"title": "Dune"})
    assert error.error == "out of spice"
    assert result.report.errors == 1


def test_a_prompt_that_is_too_long_says_how_a_column_gets_shorter(con, backend):
    error = str(PromptTooLongError(5000, 2048, "the model's context"))
    backend.function = lambda query, fields: Answer(None, Finish.ERROR, error)
    with pytest.warns(PartialResultWarning, match=r"e\.g\. with substring\(column, 1, 2000\)\.$"):
        con.sql("SELECT LLM('up', title) FROM films WHERE id = 1")


def test_a_row_that_a_filter_cannot_judge_is_left_out_and_listed(con, backend):
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning):
        result = con.sql("SELECT id FROM films WHERE LLM('up', title) != 'ALIEN' ORDER BY id")
    assert result.fetchall() == [(2,), (3,), (5,)]
    assert [error.stage for error in result.errors] == ["filter 1"]


def test_an_answer_that_was_cut_is_no_value(con, backend):
    backend.function = lambda query, fields: Answer("Al", Finish.LENGTH, output_tokens=2)
    with pytest.warns(PartialResultWarning, match="cut off after 2 tokens.*Raise max_tokens"):
        result = con.sql("SELECT LLM('up', title) FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    (error,) = result.errors
    assert (error.text, error.finish, error.attempts) == ("Al", Finish.LENGTH, 1)


@pytest.mark.parametrize("answer", ["good", "4/5", "", "nan", "inf", "1_000", "4 stars", "0x1"])
def test_an_answer_that_is_no_number_is_an_error_where_one_is_needed(answer, con, backend):
    backend.function = lambda query, fields: answer if fields["id"] == 1 else "4"
    with pytest.warns(PartialResultWarning, match="needs a number"):
        result = con.sql("SELECT avg(LLM('Rate', id)), count(*) FROM films")
    assert result.fetchall() == [(4.0, 6)]
    assert result.errors[0].error.startswith(f"The answer is {answer!r}")


@pytest.mark.parametrize(
    ("answer", "number"), [("4", 4), (" -1.5\n", -1.5), ("1e2", 100), (".5", 0.5)]
)
def test_an_answer_that_is_a_number_counts_as_one(answer, number, con, backend):
    backend.function = lambda query, fields: answer
    assert con.sql("SELECT LLM('Rate', id) * 1 FROM films LIMIT 1").fetchall() == [(number,)]


def test_on_error_raise_stops_at_the_first_failure(con, backend):
    backend.function = fails_for_dune
    with pytest.raises(RequestError, match="projection 1 for title = 'Dune': out of spice"):
        con.sql("SELECT LLM('up', title) FROM films ORDER BY id DESC", on_error="raise")
    assert con.sql("SELECT count(*) FROM films").fetchall() == [(6,)]


def test_on_error_raise_shows_few_and_short_inputs_of_the_row(con, backend):
    backend.function = lambda query, fields: Answer(None, Finish.ERROR, "no")
    with pytest.raises(RequestError) as caught:
        con.sql(
            "SELECT LLM('up', repeat('x', 99), title, id, genre, seen) FROM films WHERE id = 5",
            on_error="raise",
        )
    shown = "x" * 57 + "..."
    assert str(caught.value).startswith("projection 1 for ")
    assert f"= '{shown}', title = NULL, id = '5' and 2 more: no" in str(caught.value)


def test_the_warning_counts_in_words_that_agree(con, backend):
    backend.function = lambda query, fields: Answer(None, Finish.ERROR, "no")
    with pytest.warns(PartialResultWarning, match="^6 LLM values are missing.* The first, in pro"):
        many = con.sql("SELECT LLM('up', id) FROM films")
    with pytest.warns(PartialResultWarning, match="^1 LLM value is missing.* In projection 1: no"):
        one = con.sql("SELECT LLM('up', id) FROM films WHERE id = 1")
    assert repr(many).endswith("[6 rows, 6 LLM values are missing]")
    assert repr(one).endswith("[1 row, 1 LLM value is missing]")


def test_the_row_of_an_error_counts_the_rows_before_any_filter_with_calls(con, backend):
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning):
        result = con.sql(
            "SELECT LLM('up', title) FROM films WHERE seen AND LLM('len', id) = '1' "
            "AND LLM('up', genre) = 'DRAMA'"
        )
    assert [(error.stage, error.row) for error in result.errors] == [("projection 1", 2)]


def test_on_error_raise_stops_at_an_answer_that_is_no_number(con):
    message = "aggregate 1 for title = 'Alien': The answer is 'Rate'; the query needs"
    with pytest.raises(RequestError, match=message):
        con.sql("SELECT avg(LLM('Rate', title)) FROM films", on_error="raise")


def test_a_backend_that_forgets_a_prompt_leaves_an_error(con, backend, monkeypatch):
    monkeypatch.setattr(FakeBackend, "answer", lambda self, prompts, sampling: iter(()))
    with pytest.warns(PartialResultWarning, match="The backend gave no answer"):
        result = con.sql("SELECT LLM('up', title) FROM films")
    assert len(result.errors) == 6


def test_answers_in_any_order_reach_their_rows(con, backend):
    backend.reverse = True
    result = con.sql("SELECT title, LLM('up', title) FROM films")
    assert result.fetchall() == [
        (title, upper_or_length("up", {"title": title})) for title, _ in result.fetchall()
    ]


def test_null_cells_are_asked_about_as_null(con, backend):
    assert con.sql("SELECT LLM('up', title, tags) FROM films WHERE id = 5").fetchall() == [
        ("NULL|NULL",)
    ]
    assert backend.asked[0].fields == {"title": None, "tags": None}


def test_an_answer_with_half_a_character_is_still_text(con, backend):
    backend.function = lambda query, fields: "a\ud83c"
    assert con.sql("SELECT LLM('up', id) FROM films LIMIT 1").fetchall() == [("a\ufffd",)]
