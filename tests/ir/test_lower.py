"""A tree becomes a prompt: one span per piece of text, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.ir.known import Answered
from relquery.ir.lower import MAX_NESTING, lower
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Prepare, Retrieve, Seq, Text
from relquery.ir.optimize import optimize
from relquery.prompt import SPEAKERS, Answer, Exchange, Finish, Nest, Reuse, Role, Span
from tests.ir.forms.test_text import trees

INNER = Generate(Text("inner"))


def plus(*children):
    return Bag(children, independent=True)


def apart(text, role=Role.USER):
    return Span(text, role, Reuse.INDEPENDENT)


def nest(*spans, role=Role.USER):
    return Span(Nest(spans), role, Reuse.INDEPENDENT)


def message(text, role=Role.USER):
    """One that is told apart from the one before it."""
    return Span(text, role, begins=True)


def known(*answered):
    """What generations have given: (node, text, tokens) each."""
    return {
        id(node): Answered(lower(node), Answer(text, Finish.STOP, tokens=tokens))
        for node, text, tokens in answered
    }


def test_texts_of_different_roles_stay_apart():
    tree = Seq((Text("a", Role.SYSTEM), Text("b"), Text("c", Role.ASSISTANT)))
    assert lower(tree) == (Span("a", Role.SYSTEM), Span("b"), Span("c", Role.ASSISTANT))


def test_the_separator_of_a_bag_ends_each_child_but_the_last():
    tree = Bag((Text("a"), Seq((Text("b"), Text("c"))), Text("d")), ", ")
    assert lower(tree) == (Span("a, "), Span("b"), Span("\nc, "), Span("d"))


def test_a_separator_behind_nothing_or_a_span_opens_no_turn():
    a, b = Text("a", Role.SYSTEM), Text("b", Role.SYSTEM)
    assert lower(Seq((a, Bag((Seq(()), b), ", ")))) == (
        Span("a", Role.SYSTEM),
        Span(", ", Role.SYSTEM),
        Span("b", Role.SYSTEM),
    )
    assert lower(Bag((Seq((a, Text(""))), b), ", ")) == (
        Span("a", Role.SYSTEM),
        Span(", ", Role.SYSTEM),
        Span("b", Role.SYSTEM),
    )
    assert lower(Bag((plus(a), b), ", "))[1] == Span(", ", Role.SYSTEM)


def test_separators_of_bags_in_bags_join_at_the_end_of_the_inner_one():
    tree = Bag((Bag((Text("a"), Text("b")), ","), Text("c")), ";")
    assert "".join(str(span.content) for span in lower(tree)) == "a,b;c"


@pytest.mark.parametrize("join", [lambda *texts: Seq(texts), lambda *texts: Bag(texts)])
def test_texts_of_one_role_that_follow_one_another_are_messages_of_their_own(join):
    tree = join(Text("What is 2+2?"), Text("Answer in one word.\n"), Text("Please."))
    assert lower(tree) == (
        Span("What is 2+2?"),
        message("Answer in one word.\n"),
        message("Please."),
    )
    tree = join(Text("a", Role.SYSTEM), Text("b", Role.SYSTEM), Text("c"))
    assert lower(tree) == (
        Span("a", Role.SYSTEM),
        message("b", Role.SYSTEM),
        Span("c"),
    )


def test_a_bag_with_a_separator_is_a_list_within_the_message_around_it():
    tree = Seq((Text("["), Bag((Text("a"), Text("b")), ", "), Text("]"), Text("Sum them.")))
    assert lower(tree) == (Span("["), Span("a, "), Span("b"), Span("]"), message("Sum them."))
    one = Seq((Text("["), Bag((Text("a"),), ", "), Text("]")))
    assert lower(one) == (Span("["), Span("a"), Span("]"))


def test_spans_stand_in_the_message_around_them():
    tree = Seq((Text("Which?"), plus(Text("a"), Text("b")), Text("Now.")))
    assert lower(tree) == (Span("Which?"), apart("a"), apart("b"), Span("Now."))


@pytest.mark.parametrize("nothing", [Text(""), Seq(()), plus(), plus(Text(""), plus()), Bag(())])
def test_what_says_nothing_parts_nothing(nothing):
    tree = Seq((Text("a"), nothing, Text("b")))
    assert lower(tree) == lower(optimize(tree)) == (Span("a"), message("b"))


def test_answers_are_messages_of_their_own():
    first, second = Generate(Text("x")), Generate(Text("y"))
    lowered = lower(Seq((first, second)), known=known((first, "a", None), (second, "b", None)))
    assert lowered == (Span("a"), message("b"))


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


def test_each_child_of_plus_is_one_independent_span():
    tree = Seq((Text("a"), plus(Text("b"), Prepare(Text("c")), Fragment("d")), Text("e")))
    assert lower(tree) == (Span("a"), apart("b"), apart("c"), apart("d"), Span("e"))


def test_texts_in_a_child_of_plus_join_to_its_span_said_by_their_role():
    a, b, c = (Text(text, Role.SYSTEM) for text in "abc")
    texts = Seq((a, Bag((b, c), ",")))
    assert lower(plus(texts, Text("z"))) == (apart("ab,c", Role.SYSTEM), apart("z"))


def test_texts_of_several_roles_in_a_child_of_plus_are_the_users_a_line_each():
    texts = Seq((Text("a", Role.SYSTEM), Text("b"), Text("c"), Text("d", Role.ASSISTANT)))
    assert lower(plus(texts, Text("z"))) == (apart("a\nb\nc\nd"), apart("z"))


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("a", "b", "a\nb"),
        ("a ", "b", "a b"),
        ("a", "\nb", "a\nb"),
        ("a\n", "b", "a\nb"),
    ],
)
def test_texts_in_a_child_of_plus_do_not_run_on(first, second, joined):
    tree = plus(Seq((Text(first), Text(second))), Text("z"))
    assert lower(tree) == (apart(joined), apart("z"))


def test_what_follows_a_plus_inside_a_child_of_plus_sees_it_in_a_nest():
    tree = plus(Seq((Text("a"), plus(Text("b"), Text("c")), Text("d"), Text("e"))), Text("z"))
    assert lower(tree) == (nest(Span("a"), apart("b"), apart("c"), Span("d\ne")), apart("z"))


def test_nests_stand_in_nests():
    inner = Seq((plus(Text("a")), Text("b")))
    tree = plus(Seq((Text("c"), plus(inner, Text("d")), Text("e"))), Text("z"))
    deep = nest(apart("a"), Span("b"))
    assert lower(tree) == (nest(Span("c"), deep, apart("d"), Span("e")), apart("z"))


def test_spans_that_nothing_follows_in_their_child_stand_beside_it():
    """Nobody in the child attends to them, and who reads it reads them as well."""
    tree = plus(Seq((Text("a"), plus(Text("b"), Text("c")))), Text("z"))
    assert lower(tree) == tuple(map(apart, "abcz"))
    tree = plus(Seq((plus(Text("a")), Text("b"), plus(Seq((Text("c"), plus(Text("d"))))))))
    assert lower(Seq((Text("q"), tree))) == (
        Span("q"),
        nest(apart("a"), Span("b")),
        apart("c"),
        apart("d"),
    )


def test_a_nest_is_said_by_the_role_that_all_in_it_have():
    a, b, c = (Text(text, Role.SYSTEM) for text in "abc")
    tree = plus(Seq((a, plus(b), c)), Text("z"))
    assert lower(tree) == (
        nest(
            Span("a", Role.SYSTEM),
            apart("b", Role.SYSTEM),
            Span("c", Role.SYSTEM),
            role=Role.SYSTEM,
        ),
        apart("z"),
    )
    mixed = plus(Seq((a, plus(Text("b")), c)), Text("z"))
    assert lower(mixed) == (nest(Span("a"), apart("b"), Span("c")), apart("z"))
    several = plus(plus(a, Seq((plus(Text("u")),))), Text("z"))
    assert lower(several) == (apart("a", Role.SYSTEM), apart("u"), apart("z"))
    behind = plus(Seq((a, plus(b, Text("u")))), b)
    assert lower(behind) == (*map(apart, "abu"), apart("b", Role.SYSTEM))


def test_an_exchange_stands_in_a_nest():
    tree = plus(Seq((plus(INNER), Text("b"))), Text("z"))
    exchange = Span(Exchange((Span("inner"),), (1,)), reuse=Reuse.INDEPENDENT)
    lowered = lower(tree, known=known((INNER, "text", (1,))))
    assert lowered == (nest(exchange, Span("b")), apart("z"))


def test_nests_are_bounded_with_a_remedy():
    def nested(depth):
        tree = Seq((plus(Text("a")), Text("b")))
        for _ in range(depth - 1):
            tree = Seq((plus(tree), Text("b")))
        return plus(tree, Text("z"))

    assert len(lower(nested(MAX_NESTING))) == 2
    with pytest.raises(QueryError, match="Spans are nested more than 64 levels deep"):
        lower(nested(MAX_NESTING + 1))


def test_the_separator_after_a_plus_is_no_part_of_its_children():
    tree = Bag((plus(Text("a"), Text("b")), Text("c")), "; ")
    assert lower(tree) == (apart("a"), apart("b"), Span("; "), Span("c"))


@pytest.mark.parametrize(
    "input",
    [
        plus(Text("a")),
        plus(Prepare(Text("a"))),
        Seq((Text(""), plus(Text("a"), Text("")))),
        plus(plus(Seq((Text("a"),)))),
    ],
)
def test_a_plus_of_one_child_that_is_all_there_is_to_read_is_that_child(input):
    assert lower(Generate(input)) == (Span("a"),)


def test_a_generation_below_plus_is_the_exchange_that_lies_in_the_cache():
    tree = Generate(Seq((Text("judge"), plus(INNER, Text("b")))))
    exchange = Exchange((Span("inner"),), (1, 2))
    expected = Span("judge"), Span(exchange, reuse=Reuse.INDEPENDENT), apart("b")
    assert lower(tree, known=known((INNER, "text", (1, 2)))) == expected


def test_a_generation_below_plus_is_the_text_of_its_answer_if_there_are_no_tokens():
    tree = plus(INNER, Text("b"))
    assert lower(tree, known=known((INNER, "text", None))) == (apart("text"), apart("b"))


def test_an_empty_answer_below_plus_is_still_an_exchange():
    exchange = Exchange((Span("inner"),), ())
    lowered = lower(plus(INNER, Text("b")), known=known((INNER, "", ())))
    assert lowered == (Span(exchange, reuse=Reuse.INDEPENDENT), apart("b"))


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (Seq((Text("a"), INNER)), (Span("a"), message("text"))),
        (Seq((Text("a"), INNER, Text("b"))), (Span("a"), message("text"), message("b"))),
        (Seq((Text("a: "), Bag((INNER,), ", "))), (Span("a: "), Span("text"))),
        (Bag((INNER, Text("b")), "; "), (Span("text; "), Span("b"))),
        (plus(Seq((Text("a: "), INNER)), Text("b")), (apart("a: text"), apart("b"))),
        (Generate(plus(INNER)), (Span("text"),)),
    ],
)
def test_a_generation_elsewhere_is_the_text_of_its_answer_said_by_the_user(tree, expected):
    assert lower(tree, known=known((INNER, "text", (1,)))) == expected


def test_an_answer_behind_the_very_messages_that_it_answers_is_the_assistants_turn():
    first = Text("s", Role.SYSTEM), Text("inner")
    answered = Generate(Seq(first))
    tree = Generate(Seq((*first, answered, Text("go on"))))
    expected = Span("s", Role.SYSTEM), Span("inner"), Span("text", Role.ASSISTANT), Span("go on")
    assert lower(tree, known=known((answered, "text", (1,)))) == expected


def test_a_retrieval_stands_for_what_was_found():
    retrieve = Retrieve(Text("q"), "wiki")
    found = plus(Text("a"), Text("b"))
    tree = Seq((Text("q"), plus(retrieve)))
    assert lower(tree, known={id(retrieve): found}) == (Span("q"), apart("a"), apart("b"))


@pytest.mark.parametrize("sugar", [Chat((Text("a"),)), Retrieve(Text("a"), "wiki")])
def test_sugar_is_refused_with_a_remedy(sugar):
    with pytest.raises(UnsupportedQueryError, match=r"relquery\.optimize"):
        lower(Seq((Text("q"), sugar)))


def test_a_tree_of_any_depth_is_lowered():
    tree = Text("a")
    for _ in range(20_000):
        tree = Seq((Text("b"), plus(Prepare(tree))))
    assert len(lower(tree)) == 20_001


@given(trees)
def test_every_span_is_text_and_outside_of_plus_attends_to_all_before_it(tree):
    try:
        prompt = lower(tree)
    except UnsupportedQueryError:
        return
    assert all(span.content for span in prompt)
    if not any(isinstance(node, Bag) and node.independent for node in tree.walk()):
        assert all(span.reuse is Reuse.PREFIX for span in prompt)


@given(trees)
def test_optimisation_for_the_cache_changes_no_prompt(tree):
    try:
        prompt = lower(tree)
        optimized = optimize(tree)
    except (QueryError, UnsupportedQueryError):
        return
    assert lower(optimized) == prompt


SAID = st.builds(Text, st.sampled_from(["a", "b\n", " c"]), st.sampled_from(SPEAKERS))
SAID_IN_TURN = st.lists(SAID, min_size=1, max_size=3).map(lambda texts: Seq(tuple(texts)))
PLUSES = st.lists(st.lists(SAID | SAID_IN_TURN, min_size=1, max_size=3), min_size=1, max_size=4)


@given(PLUSES)
def test_a_child_made_of_plus_alone_is_the_spans_in_it_each_by_its_role(pluses):
    inner = Seq(tuple(Bag(tuple(plus), independent=True) for plus in pluses))
    flat = tuple(child for plus in pluses for child in plus)

    def prompt(*children):
        return lower(Generate(Seq((Text("q"), Bag(children, independent=True), Text("r")))))

    assert prompt(inner) == prompt(*flat)
