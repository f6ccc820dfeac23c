"""Prompts: what they import, and why others are refused."""

from __future__ import annotations

import pytest

from relquery.errors import MarkupError
from relquery.markup.imports import MarkupPrompt
from relquery.markup.schema import Schema
from relquery.markup.schemas import draw
from tests.cases import case_file
from tests.markup.read.test_schema import TRAVEL

SCHEMA = Schema.parse(TRAVEL)


def prompt(inside: str) -> MarkupPrompt:
    return MarkupPrompt.parse(f"<prompt schema='travel'>{inside}</prompt>", SCHEMA)


def test_a_prompt_imports_modules_fills_parameters_and_adds_text_anywhere() -> None:
    made = prompt("Well, <plan duration='3 days'>then <abroad/></plan><user>And now?</user>")
    assert draw(made).splitlines() == [
        "prompt of schema travel",
        '├── "Well,"',
        '├── + plan duration="3 days"',
        '│   ├── "then"',
        "│   └── + abroad",
        '└── user "And now?"',
    ]
    assert list(made.imports()) == [("plan",), ("plan", "abroad")]


def test_a_prompt_names_its_schema() -> None:
    other = Schema.parse("<schema name='other'/>")
    text = "<prompt schema='other'>Hello.</prompt>"
    assert MarkupPrompt.parse(text, {"travel": SCHEMA, "other": other}).schema is other


def test_what_does_not_fit_the_schema_is_told_with_its_place() -> None:
    for inside, message, column in case_file(__file__, "imports_refused.txt"):
        with pytest.raises(MarkupError, match=message) as caught:
            prompt(inside)
        assert (caught.value.line, caught.value.column) == (1, int(column))


def test_a_prompt_that_is_none_is_refused() -> None:
    for text, message in case_file(__file__, "prompt_refused.txt"):
        with pytest.raises(MarkupError, match=message):
            MarkupPrompt.parse(text, SCHEMA)
