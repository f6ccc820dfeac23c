"""A tree becomes a prompt: one span per piece of text, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.ir.lower import MAX_NESTING, Answered, lower
from relquery.ir.nodes import Bag, Chat, Generate, Node, Retrieve, Seq, Text
from relquery.ir.optimize import optimize
from relquery.ir.text import parse_tree
from relquery.prompt import SPEAKERS, Answer, Exchange, Finish, Nest, Reuse, Role, Span
from tests.ir.test_text import trees

INNER = Generate(Text("inner"))
A, B, C, D, E, Z = map(Text, "abcdez")
SA, SB, SC = (Text(text, Role.SYSTEM) for text in "abc")
EMPTY = Text("")


def plus(*children: Node) -> Bag:
    return Bag(children, independent=True)


def seq(*children: Node) -> Seq:
    return Seq(children)


def apart(text: str, role: Role = Role.USER) -> Span:
    return Span(text, role, Reuse.INDEPENDENT)


def nest(*spans: Span, role: Role = Role.USER) -> Span:
    return Span(Nest(spans), role, Reuse.INDEPENDENT)


def message(text: str, role: Role = Role.USER) -> Span:
    """One that is told apart from the one before it."""
    return Span(text, role, begins=True)


def answer(text: str) -> Span:
    return Span(text, Role.ASSISTANT)


def system(*texts: str) -> tuple[Span, ...]:
    return tuple(Span(text, Role.SYSTEM) for text in texts)


def known(*answered: tuple[Node, str, tuple[int, ...] | None]) -> dict[int, Answered | Node]:
    """What generations have given: (node, text, tokens) each."""
    return {
        id(node): Answered(lower(node), Answer(text, Finish.STOP, tokens=tokens))
        for node, text, tokens in answered
    }


def shown(prompt: tuple[Span, ...], indent: str = "") -> Iterator[str]:
    """A prompt, a span a line, with those of a nest below it."""
    for span in prompt:
        apart, begins = span.reuse is Reuse.INDEPENDENT, span.begins
        head = f"{indent}{'apart ' * apart}{'begins ' * begins}{span.role.value}"
        if isinstance(span.content, Nest):
            yield head
            yield from shown(span.content.spans, f"{indent}  ")
        else:
            yield f"{head} {json.dumps(span.content)}"


def test_a_tree_is_lowered_to_the_spans_that_stand_beside_it() -> None:
    for case in (Path(__file__).parent / "lowered.txt").read_text("utf-8").split("\n\n"):
        said, _, trees = case.strip().partition("\n")
        tree, _, spans = trees.partition("\n=>\n")
        assert "\n".join(shown(lower(parse_tree(tree)))) == spans, said


@pytest.mark.parametrize("nothing", [EMPTY, Seq(()), plus(), plus(EMPTY, plus()), Bag(())])
def test_what_says_nothing_parts_nothing(nothing: Node) -> None:
    tree = seq(A, nothing, B)
    assert lower(tree) == lower(optimize(tree)) == (Span("a"), message("b"))


def test_equal_pieces_are_one_span_across_the_trees_that_share_a_table() -> None:
    spans: dict[Any, Span] = {}
    first = lower(Bag((A, B), ","), spans)
    second = lower(Bag((A, C), ","), spans)
    assert first[0] is second[0]


def test_nests_are_bounded_with_a_remedy() -> None:
    def nested(depth: int) -> Node:
        tree = seq(plus(A), B)
        for _ in range(depth - 1):
            tree = seq(plus(tree), B)
        return plus(tree, Z)

    assert len(lower(nested(MAX_NESTING))) == 2
    with pytest.raises(QueryError, match="Spans are nested more than 64 levels deep"):
        lower(nested(MAX_NESTING + 1))


def exchange(*tokens: int) -> Span:
    return Span(Exchange((Span("inner"),), tokens), reuse=Reuse.INDEPENDENT)


@pytest.mark.parametrize(
    ("tree", "text", "tokens", "expected"),
    [
        # Below plus it is the exchange that lies in the cache, an empty answer, too.
        (Generate(seq(A, plus(INNER, B))), "text", (1, 2), (Span("a"), exchange(1, 2), apart("b"))),
        (plus(INNER, B), "", (), (exchange(), apart("b"))),
        (plus(seq(plus(INNER), B), Z), "text", (1,), (nest(exchange(1), Span("b")), apart("z"))),
        # If there are no tokens, it is the text of its answer.
        (plus(INNER, B), "text", None, (apart("text"), apart("b"))),
        # Elsewhere, too, said by the user.
        (seq(A, INNER), "text", (1,), (Span("a"), message("text"))),
        (seq(A, INNER, B), "text", (1,), (Span("a"), message("text"), message("b"))),
        (seq(INNER, INNER), "text", (1,), (Span("text"), message("text"))),
        (seq(Text("a: "), Bag((INNER,), ", ")), "text", (1,), (Span("a: "), Span("text"))),
        (Bag((INNER, B), "; "), "text", (1,), (Span("text; "), Span("b"))),
        (plus(seq(Text("a: "), INNER), B), "text", (1,), (apart("a: text"), apart("b"))),
        (Generate(plus(INNER)), "text", (1,), (Span("text"),)),
    ],
)  # fmt: skip
def test_a_generation_that_was_run_stands_for_its_answer(
    tree: Node, text: str, tokens: tuple[int, ...] | None, expected: tuple[Span, ...]
) -> None:
    assert lower(tree, known=known((INNER, text, tokens))) == expected


def test_an_answer_behind_the_very_messages_that_it_answers_is_the_assistants_turn() -> None:
    first = Text("s", Role.SYSTEM), Text("inner")
    answered = Generate(Seq(first))
    tree = Generate(seq(*first, answered, Text("go on")))
    expected = *system("s"), Span("inner"), answer("text"), Span("go on")
    assert lower(tree, known=known((answered, "text", (1,)))) == expected


def test_a_retrieval_stands_for_what_was_found() -> None:
    retrieve = Retrieve(Text("q"), "wiki")
    tree = seq(Text("q"), plus(retrieve))
    assert lower(tree, known={id(retrieve): plus(A, B)}) == (Span("q"), apart("a"), apart("b"))


@pytest.mark.parametrize(
    ("below", "message"),
    [
        (Chat((A,)), r"relquery\.optimize"),
        (Retrieve(A, "wiki"), r"relquery\.optimize"),
        (INNER, "Run the inner one first"),
    ],
)
def test_what_is_no_prompt_yet_is_refused_with_a_remedy(below: Node, message: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=message):
        lower(Generate(seq(Text("q"), below)))


@given(trees)
def test_optimisation_for_the_cache_changes_no_prompt(tree: Node) -> None:
    try:
        prompt = lower(tree)
        optimized = optimize(tree)
    except (QueryError, UnsupportedQueryError):
        return
    assert lower(optimized) == prompt


SAID = st.builds(Text, st.sampled_from(["a", "b\n", " c"]), st.sampled_from(SPEAKERS))
SAID_IN_TURN = st.lists(SAID, min_size=1, max_size=3).map(lambda texts: seq(*texts))
PLUSES = st.lists(st.lists(SAID | SAID_IN_TURN, min_size=1, max_size=3), min_size=1, max_size=4)


@given(PLUSES)
def test_a_child_made_of_plus_alone_is_the_spans_in_it_each_by_its_role(
    pluses: list[list[Node]],
) -> None:
    def prompt(*children: Node) -> tuple[Span, ...]:
        return lower(Generate(seq(Text("q"), plus(*children), Text("r"))))

    inner = seq(*(plus(*children) for children in pluses))
    assert prompt(inner) == prompt(*(child for children in pluses for child in children))
