"""Prompts: what they import, and why others are refused."""

from __future__ import annotations

import pytest

from relquery.errors import MarkupError
from relquery.markup.read.draw import draw
from relquery.markup.read.imports import MarkupPrompt
from relquery.markup.read.schema import Schema
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


@pytest.mark.parametrize(
    ("inside", "message", "column"),
    [
        ("<plann/>", "Schema 'travel' has no module 'plann'. Modules: plan.*mean 'plan'", 25),
        (
            "<home/>",
            "Schema 'travel' has no module 'home'.*'home' is in 'plan': write <plan><home/></plan>",
            25,
        ),
        ("<plan><tokyo/></plan>", "Module 'plan' has no module 'tokyo'. Modules: home, abroad", 31),
        (
            "<plan><home><plan/></home></plan>",
            "Module 'home' has no module 'plan'. It has none",
            37,
        ),
        ("<plan/><plan/>", "Module 'plan' is imported twice", 32),
        ("<plan><home/><abroad/></plan>", "'home' and 'abroad' are in one union", 38),
        ("<plan days='3'/>", "parameter 'days' of module 'plan' is not known. Known: duration", 25),
        ("<user><plan/></user>", "holds text and nothing else", 25),
        ("<user name='a'>b</user>", "has no attributes", 25),
    ],
)
def test_what_does_not_fit_the_schema_is_told_with_its_place(
    inside: str, message: str, column: int
) -> None:
    with pytest.raises(MarkupError, match=message) as caught:
        prompt(inside)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<prompt>a</prompt>", "<prompt> does not name its schema"),
        ("<prompt schema='travl'/>", "Did you mean 'travel'"),
        ("<prompt schema='travel' name='a'/>", "attribute 'name'"),
        ("<schema name='a'/>", "begins with <prompt"),
    ],
)
def test_a_prompt_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(MarkupError, match=message):
        MarkupPrompt.parse(text, SCHEMA)
