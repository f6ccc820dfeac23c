"""A row that cannot be answered is NULL and listed; the others have their values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, PromptTooLongError, RequestError
from relquery.prompt import Answer, Finish
from tests.sql.conftest import fails_for_dune
from tests.sql.fakes import FakeBackend, Fields


def failing(error: str) -> Callable[[str, Fields], Answer]:
    return lambda query, fields: Answer(None, Finish.ERROR, error)


def test_a_failed_request_is_null_and_listed(con: Connection, backend: FakeBackend) -> None:
    backend.function, backend.reverse = fails_for_dune, True  # answers come in any order
    with pytest.warns(PartialResultWarning, match=r"1 LLM value is missing.*out of spice"):
        result = con.sql("SELECT id, LLM('up', title) FROM films WHERE seen ORDER BY id")
    assert result.fetchall() == [(1, "ALIEN"), (3, "BRAZIL"), (6, None)]
    (error,) = result.errors
    assert (error.stage, error.row, error.inputs) == ("projection 1", 2, {"title": "Dune"})
    assert error.error == "out of spice"
    assert result.report.errors == 1


def test_a_prompt_that_is_too_long_has_a_remedy(con: Connection, backend: FakeBackend) -> None:
    backend.function = failing(str(PromptTooLongError(5000, 2048, "the model's context")))
    with pytest.warns(PartialResultWarning, match=r"e\.g\. with substring\(column, 1, 2000\)\.$"):
        con.sql("SELECT LLM('up', title) FROM films WHERE id = 1")


def test_a_row_that_is_not_judged_is_left_out(con: Connection, backend: FakeBackend) -> None:
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning):
        result = con.sql(
            "SELECT id, LLM('up', title, genre) FROM films WHERE seen AND LLM('len', id) = '1' "
            "AND LLM('up', title) != 'ALIEN' ORDER BY id"
        )
    assert result.fetchall() == [(3, "COMEDY|BRAZIL")]
    assert [(error.stage, error.row) for error in result.errors] == [("filter 2", 2)]


def test_an_answer_that_was_cut_is_no_value(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: Answer("Al", Finish.LENGTH, output_tokens=2)
    with pytest.warns(PartialResultWarning, match="cut off after 2 tokens.*Raise max_tokens"):
        result = con.sql("SELECT LLM('up', title) FROM films WHERE id = 1")
    assert result.fetchall() == [(None,)]
    (error,) = result.errors
    assert (error.text, error.finish, error.attempts) == ("Al", Finish.LENGTH, 1)


def test_what_is_no_number_is_an_error(con: Connection, backend: FakeBackend) -> None:
    values = {"1": "4", "2": " -1.5\n", "3": "1e2", "4": ".5", "5": "-0", "6": "4"}
    backend.function = lambda query, fields: values[str(fields["id"])]
    query = "SELECT LLM('Rate', id) * 1 FROM films ORDER BY id"
    assert con.sql(query).fetchall() == [(4,), (-1.5,), (100,), (0.5,), (0,), (4,)]
    for wrong in (["good", "4/5", "", "nan", "inf"], ["1_000", "4 stars", "0x1", "٤", "1e"]):
        values = {str(at + 1): text for at, text in enumerate([*wrong, "4"])}
        with pytest.warns(PartialResultWarning, match="needs a number"):
            result = con.sql("SELECT avg(LLM('Rate', id)), count(*) FROM films")
        assert result.fetchall() == [(4.0, 6)]
        for error, text in zip(result.errors, wrong, strict=True):
            assert str(error.error).startswith(f"The answer is {text!r}")


def test_on_error_raise_stops_at_the_first_failure(con: Connection, backend: FakeBackend) -> None:
    backend.function = fails_for_dune
    with pytest.raises(RequestError, match="projection 1 for title = 'Dune': out of spice"):
        con.sql("SELECT LLM('up', title) FROM films ORDER BY id DESC", on_error="raise")
    backend.function = lambda query, fields: query
    message = "aggregate 1 for title = 'Alien': The answer is 'Rate'; the query needs"
    with pytest.raises(RequestError, match=message):
        con.sql("SELECT avg(LLM('Rate', title)) FROM films", on_error="raise")
    backend.function = failing("no")
    with pytest.raises(RequestError) as caught:
        con.sql(
            "SELECT LLM('up', repeat('x', 99), title, id, genre, seen) FROM films WHERE id = 5",
            on_error="raise",
        )
    assert str(caught.value).startswith("projection 1 for ")
    shown = "x" * 57 + "..."  # few inputs of the row, and short
    assert f"= '{shown}', title = NULL, id = '5' and 2 more: no" in str(caught.value)
    assert con.sql("SELECT count(*) FROM films").fetchall() == [(6,)]


def test_the_warning_counts_in_words_that_agree(con: Connection, backend: FakeBackend) -> None:
    backend.function = failing("no")
    with pytest.warns(PartialResultWarning, match="^6 LLM values are missing.* The first, in pro"):
        many = con.sql("SELECT LLM('up', id) FROM films")
    with pytest.warns(PartialResultWarning, match="^1 LLM value is missing.* In projection 1: no"):
        one = con.sql("SELECT LLM('up', id) FROM films WHERE id = 1")
    assert repr(many).endswith("[6 rows, 6 LLM values are missing]")
    assert repr(one).endswith("[1 row, 1 LLM value is missing]")


def test_a_backend_that_forgets_a_prompt_leaves_an_error(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "answer", lambda self, prompts, sampling: iter(()))
    with pytest.warns(PartialResultWarning, match="The backend gave no answer"):
        result = con.sql("SELECT LLM('up', title) FROM films")
    assert len(result.errors) == 6


def test_null_cells_and_broken_characters_are_text(con: Connection, backend: FakeBackend) -> None:
    backend.function = lambda query, fields: "a\ud83c" if query == "half" else str(fields)
    query = "SELECT LLM('up', title, tags), LLM('half') FROM films WHERE id = 5"
    assert con.sql(query).fetchall() == [("{'title': None, 'tags': None}", "a\ufffd")]
