"""Children of plus as ordinary text: what they say, a line each, and nothing runs on."""

from __future__ import annotations

from typing import Any

import pytest

from relquery import span
from relquery.ir.lower import lower
from relquery.prompt import Prompt, Reuse, Role, Span
from relquery.spans.execute import as_plain


def plain(*input: Any) -> Prompt:
    return as_plain(lower(span.generate(*input)))


def text(prompt: Prompt) -> str:
    assert all(each.reuse is Reuse.PREFIX for each in prompt)
    return "".join(str(each.content) for each in prompt)


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        (("q ", span.plus("a", "b\n"), "end"), "q a\nb\nend"),
        (("q?", span.plus("a", "b"), "end"), "q?\na\nb\nend"),
        ((span.plus("a", "b"), "end"), "a\nb\nend"),
    ],
)
def test_children_of_plus_are_lines(input: Any, expected: str) -> None:
    assert text(plain(*input)) == expected


def test_a_plus_in_a_child_of_plus_is_lines_in_its_place() -> None:
    child = span.seq("AAAA", span.plus("BBBB", span.seq(span.plus("C"), "c")), "DDDD")
    prompt = plain("Q ", span.plus(child, "E"), "end")
    assert text(prompt) == "Q AAAA\nBBBB\nC\nc\nDDDD\nE\nend"


def test_a_prompt_without_spans_stays_as_it_is() -> None:
    prompt = lower(span.generate(span.system("s"), "a", "b"))
    assert as_plain(prompt) == prompt


def test_lines_are_said_by_the_role_of_their_child() -> None:
    child = span.seq(span.system("a"), span.plus(span.system("b")), span.system("c"))
    prompt = plain("q", span.plus(child, "z"))
    assert prompt == (
        Span("q"),
        *(Span(f"{letter}\n", Role.SYSTEM) for letter in "abc"),
        Span("z\n"),
    )
