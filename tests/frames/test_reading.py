"""Instructions name columns in braces, and outputs are names with types."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError, UnknownColumnError
from relquery.frames.arguments import NewColumn, read_outputs
from relquery.frames.expressions import check_named, finder, read_langex

COLUMNS = ("review", "Course Name", 'odd "name"', "x{y")


def read(text: object) -> tuple[str, list[str]]:
    langex = read_langex(text, finder(COLUMNS), verb="sem_filter")
    return langex.prompt, [field.name for field in langex.fields]


def test_a_column_becomes_a_numbered_field_once() -> None:
    assert read("{review} fits {Course Name}, {review}") == (
        "{0} fits {1}, {0}",
        ["review", "Course Name"],
    )


def test_a_name_may_differ_in_case_and_blanks() -> None:
    assert read("{ course name } and {REVIEW}")[1] == ["Course Name", "review"]


def test_doubled_braces_are_text_that_a_prompt_does_not_take_for_a_field() -> None:
    assert read("{{review}} {review}") == ("{{review}} {0}", ["review"])
    assert read("{{{review}}}") == ("{{ 0 }}", ["review"])


def test_an_unknown_column_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'review'"):
        read("{reviews} is good")


@pytest.mark.parametrize("given", ["", "  ", None, 3])
def test_an_instruction_is_a_text(given: object) -> None:
    with pytest.raises(ConfigError, match="must be a text that names columns"):
        read(given)


def test_an_instruction_without_a_column_is_refused() -> None:
    langex = read_langex("all good?", finder(COLUMNS), verb="sem_map")
    with pytest.raises(ConfigError, match=r"names no column.*\{review\}"):
        check_named(langex, "all good?", "sem_map", COLUMNS)


def test_a_claim_is_asked_as_a_question_and_a_question_as_it_is() -> None:
    for text, asked in {
        "{review} is good": "Is this true? {0} is good",
        "Is {review} good?": "Is {0} good?",
        "Is {review} good? Say Yes or No.": "Is {0} good? Say Yes or No.",
        "Is it good, {review}": "Is this true? Is it good, {0}",
    }.items():
        assert read_langex(text, finder(COLUMNS), verb="v").claim.prompt == asked


def test_a_criterion_has_no_question_mark() -> None:
    assert read_langex("Best {review}?", finder(COLUMNS), verb="v").criterion.prompt == "Best {0}"


def test_outputs_are_read() -> None:
    for text, *outputs in [
        ("tag", ("tag", "VARCHAR")),
        ("tag VARCHAR", ("tag", "VARCHAR")),
        ("_map", ("_map", "VARCHAR")),
        ('"my tag" INTEGER', ("my tag", "INTEGER")),
        ("a DECIMAL(1,2), b ENUM('x, y')", ("a", "DECIMAL(1,2)"), ("b", "ENUM('x, y')")),
        ('"a,""b" INT[]', ('a,"b', "INT[]")),
    ]:
        assert read_outputs(text, "sem_map") == tuple(NewColumn(*one) for one in outputs)


def test_other_texts_are_refused() -> None:
    for text in ("", ",", "a INT,", "(x)", None, "a INT, A INT"):
        with pytest.raises(ConfigError, match="output of sem_map"):
            read_outputs(text, "sem_map")
