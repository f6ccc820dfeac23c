"""A tree becomes a prompt: one span per piece of text, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.ir.test_text import trees

from relquery.errors import UnsupportedQueryError
from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Generate, Seq, Text
from relquery.prompt import Reuse, Role, Span


def test_texts_of_different_roles_stay_apart():
    tree = Seq((Text("a", Role.SYSTEM), Text("b"), Text("c", Role.ASSISTANT)))
    assert lower(tree) == (Span("a", Role.SYSTEM), Span("b"), Span("c", Role.ASSISTANT))


def test_the_separator_of_a_bag_ends_each_child_but_the_last():
    tree = Bag((Text("a"), Seq((Text("b"), Text("c"))), Text("d")), ", ")
    assert lower(tree) == (Span("a, "), Span("b"), Span("c, "), Span("d"))


def test_separators_of_bags_in_bags_join_at_the_end_of_the_inner_one():
    tree = Bag((Bag((Text("a"), Text("b")), ","), Text("c")), ";")
    assert "".join(str(span.content) for span in lower(tree)) == "a,b;c"


def test_an_empty_child_still_has_its_separator():
    tree = Bag((Text(""), Seq(()), Text("c")), ",")
    assert "".join(str(span.content) for span in lower(tree)) == ",,c"


def test_empty_text_makes_no_span():
    assert lower(Seq((Text(""), Text("a"), Text("")))) == (Span("a"),)


def test_a_generation_is_lowered_to_the_prompt_of_its_input():
    assert lower(Generate(Text("a"))) == (Span("a"),)


def test_equal_pieces_are_one_span_across_the_trees_that_share_a_table():
    spans = {}
    first = lower(Bag((Text("a"), Text("b")), ","), spans)
    second = lower(Bag((Text("a"), Text("c")), ","), spans)
    assert first[0] is second[0]


def test_a_generation_inside_of_a_prompt_is_refused_with_a_remedy():
    with pytest.raises(UnsupportedQueryError, match="Run the inner one first"):
        lower(Generate(Seq((Text("a"), Generate(Text("b"))))))


@given(trees)
def test_every_span_is_text_and_attends_to_all_before_it(tree):
    try:
        prompt = lower(tree)
    except UnsupportedQueryError:
        return
    assert all(span.content and span.reuse is Reuse.PREFIX for span in prompt)
