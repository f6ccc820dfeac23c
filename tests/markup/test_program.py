"""Functions as schemas: what they say, and the prompts that calls of them make."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest

import relquery as rq
from relquery.errors import MarkupError
from relquery.markup.imports import MarkupPrompt
from relquery.markup.program import PromptFunction, schema
from relquery.markup.tokens import as_text


@schema
def travel(duration: Annotated[str, 4], place: str, budget: bool = False) -> None:
    "Hello."
    f"I travel for {duration} & more."
    match place:
        case "tokyo":
            "To Tokyo."
        case "rome":
            "To Rome,"
            if budget:
                "cheaply."
            else:
                "in style."
        case _:
            "Anywhere."


def test_a_function_is_a_schema() -> None:
    assert travel.schema.source == (
        '<schema name="travel" xml:space=\'preserve\'><module name="travel">'
        "Hello.\nI travel for <param name=\"duration\" len='4'/> &amp; more.<union>"
        '<module name="tokyo">\nTo Tokyo.</module><module name="rome">\nTo Rome,<union>'
        '<module name="budget">\ncheaply.</module><module name="no-budget">\nin style.</module>'
        '</union></module><module name="other-place">\nAnywhere.</module></union>'
        "</module></schema>"
    )


def spoken(function: PromptFunction, markup: str) -> str:
    (message,) = as_text(MarkupPrompt.parse(markup, function.schema))
    return str(message.content)


def test_a_call_makes_a_prompt() -> None:
    made = travel('3 "long" days', place="rome", budget=True, text="Where < there?")
    assert spoken(travel, made) == (
        'Hello.\nI travel for 3 "long" days & more.\nTo Rome,\ncheaply.\nWhere < there?'
    )
    assert (
        spoken(travel, travel("a week", "tokyo"))
        == "Hello.\nI travel for a week & more.\nTo Tokyo."
    )
    assert spoken(travel, travel("a week", "oslo")).endswith("Anywhere.")
    assert spoken(travel, travel("a week", "rome")).endswith("in style.")


@schema
def lines(a: Annotated[str, 5], b: Annotated[str, 5], sea: bool = True, place: str = "") -> None:
    "First."
    if sea:
        "At sea."
    f"{a}"
    f"{b}"
    f"{a} again\n{b}"
    match place:
        case "big city":
            "Big."
        case "sea":
            "Sea."
    if sea:
        f"{a}"
        "Last."


@schema
def chosen(sea: bool) -> None:
    if sea:
        "At sea."
    else:
        "On land."
    "Last."


def test_each_string_is_a_line() -> None:
    assert spoken(lines, lines("x", "y")) == "First.\nAt sea.\nx\ny\nx again\ny\nx\nLast."
    assert spoken(lines, lines("x", "y", sea=False)) == "First.\nx\ny\nx again\ny"
    assert spoken(chosen, chosen(sea=True)) == "At sea.\nLast."
    assert spoken(chosen, chosen(sea=False)) == "On land.\nLast."


def test_a_text_may_be_a_case_of_several_arguments_and_any_text_a_case() -> None:
    assert spoken(lines, lines("x", "y", sea=False, place="sea")).endswith("y\nSea.")
    assert spoken(lines, lines("x", "y", sea=False, place="big city")).endswith("y\nBig.")


def test_a_value_without_a_case_is_told() -> None:
    with pytest.raises(
        MarkupError, match=r"lines\(\): The case 'see' of 'place' is not known.*'sea'"
    ):
        lines("x", "y", place="see")
    for nothing in ("", None, False):
        assert lines("x", "y", place=nothing) == lines("x", "y")
    with pytest.raises(MarkupError, match=r"argument 'plac' of lines\(\).*Did you mean 'place'"):
        lines("x", "y", plac="sea")


def test_a_function_may_have_the_name_of_a_tag() -> None:
    @schema
    def user(module: bool) -> None:
        if module:
            "Yes."

    assert spoken(user, user(module=True)) == "Yes."


def test_its_prompts_are_answered() -> None:
    with rq.connect("random:layers=1,hidden=32,heads=2,ffn=32") as con:
        con.register(travel.schema, prepare=True)
        result = con.prompt(travel("now", "tokyo", text="Well?"), max_tokens=2)
        *modules, added = result.used
        assert [used.cached for used in modules] == [used.tokens for used in modules]
        assert added.cached == 0


def test_other_arguments_are_told() -> None:
    with pytest.raises(MarkupError, match=r"travel\(\): missing a required argument: 'place'"):
        travel("a week")


def _loop(n: int) -> None:
    for _ in range(n):
        "a"


def _strange(a: bool) -> None:
    if b:  # type: ignore[name-defined]  # noqa: F821
        "a"


def _no_length(a: str) -> None:
    "a"
    f"{a}"


def _compared(a: int) -> None:
    if a > 3:
        "a"


def _adds(text: Annotated[str, 8]) -> None:
    "It is:"
    f"{text}"


def _formatted(a: Annotated[str, 2]) -> None:
    "a"
    f"{a:>10}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_loop, r"Only strings, if, match and pass.*line 2 of _loop"),
        (_strange, r"argument 'b' of _strange\(\) is not known"),
        (_no_length, r"a: Annotated\[str, 8\]"),
        (_compared, r"argument's name must stand here"),
        (_formatted, r"\{argument\} alone"),
        (_adds, r"_adds\(\) has an argument named 'text'.*Rename it"),
    ],
)
def test_what_is_no_schema_is_told(function: Callable[..., None], message: str) -> None:
    with pytest.raises(MarkupError, match=message):
        PromptFunction(function)


@pytest.mark.parametrize("given", [dict, "text", print, functools.partial(_loop)])
def test_a_schema_is_made_of_a_function_alone(given: Any) -> None:
    with pytest.raises(MarkupError, match="functions that are defined with def"):
        schema(given)
