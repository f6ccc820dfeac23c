"""The optimizer keeps what is asked, comes to an end, and says so for trees of any size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from relquery.errors import ConfigError, QueryError
from relquery.ir.forms.text import parse_tree
from relquery.ir.nodes import Bag, Fragment, Generate, Prepare, Retrieve, Seq, Text
from relquery.ir.optimize import RULES, awaits_retrieval, optimize
from relquery.ir.rewrite import rewrite
from relquery.ir.rules.reduce_tree import reduce_tree
from relquery.ir.verify import verify
from tests.ir.golden_rules import look_up
from tests.ir.meaning import meaning
from tests.ir.strategies import local_queries, queries
from tests.pace import within

goals = st.sampled_from(["cache", "attention"])


def texts(tree):
    """How often each text that is not empty stands in the tree."""
    leaves = (node for node in tree.walk() if isinstance(node, Text | Fragment))
    return Counter(node.content for node in leaves if node.content)


@given(local_queries)
def test_a_tree_optimized_for_the_cache_asks_what_it_asked_before(tree):
    assert meaning(optimize(tree)) == meaning(tree)


@given(local_queries)
def test_no_text_is_lost_and_none_is_added_for_the_cache(tree):
    assert texts(optimize(tree)) == texts(tree)


@given(local_queries, st.integers(2, 4))
def test_reduction_repeats_texts_and_loses_none(tree, arity):
    before, after = texts(tree), texts(optimize(tree, "attention", arity=arity))
    assert after.keys() == before.keys()
    assert after >= before


@given(queries, goals)
def test_an_optimized_tree_is_left_as_it_is(tree, goal):
    once = optimize(tree, goal, retrieve=look_up)
    assert optimize(once, goal, retrieve=look_up) == once


@given(queries, goals)
def test_an_optimized_tree_is_in_core_operators(tree, goal):
    optimized = optimize(tree, goal, retrieve=look_up)
    try:
        verify(optimized)
    except QueryError:
        return  # asked nothing from the start
    verify(optimized, desugared=True)


@given(local_queries, goals)
def test_every_rule_leaves_a_tree_that_verifies(tree, goal):
    try:
        verify(tree)
    except QueryError:
        assume(False)
    simple = rewrite(tree, RULES[goal], verified=True)
    if goal == "attention":
        rewrite(simple, (*RULES[goal], reduce_tree(2)), verified=True)


def test_every_judge_reads_at_most_as_many_as_the_arity():
    names = Bag(tuple(Generate(Text(str(i))) for i in range(100)), independent=True)
    tree = optimize(Generate(Seq((Text("Which?"), names))), "attention", arity=3)
    joins = [node for node in tree.walk() if isinstance(node, Bag)]
    assert max(len(join.children) for join in joins) == 3
    assert texts(tree) == texts(names) + Counter({"Which?": len(joins)})


def test_the_optimized_rag_query_is_that_of_figure_9b():
    chat = parse_tree('chat\n  system "S"\n  retrieve "c" limit=2\n    user "Who?"\n  user "Who?"')
    assert str(optimize(chat, retrieve=look_up)).split("\n") == [
        "generate",
        "  seq",
        '    system "S"',
        "    plus",
        "      prepare",
        '        user "c 1: Who?"',
        "      prepare",
        '        user "c 2: Who?"',
        '    user "Who?"',
    ]


def test_a_question_is_looked_up_once():
    asked = []

    def look_up_once(corpus, text, limit):
        asked.append((corpus, text, limit))
        return ["found"]

    same = [Retrieve(Text("x"), "c"), Retrieve(Seq((Text("x"),)), "c"), Retrieve(Text("y"), "c")]
    optimize(Generate(Seq(tuple(same))), retrieve=look_up_once)
    assert sorted(asked) == [("c", "x", 5), ("c", "y", 5)]


def test_a_retrieve_is_an_error_without_a_function_that_looks_up():
    with pytest.raises(QueryError, match=r"corpus 'wiki'.*Pass retrieve=f"):
        optimize(Generate(Retrieve(Text("x"), "wiki")))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("text", "returned a str for corpus 'c'; it must return a list"),
        (None, "returned a NoneType"),
        ([b"text"], "a bytes among the texts"),
        (["a", "b"], "returned 2 texts for corpus 'c'; the limit was 1"),
    ],
)
def test_what_looks_up_gives_at_most_so_many_texts(found, message):
    with pytest.raises(QueryError, match=message):
        optimize(Retrieve(Text("x"), "c", 1), retrieve=lambda *_: found)


def test_a_retrieve_that_awaits_an_answer_stays_and_is_told():
    tree = Generate(Retrieve(Generate(Text("x")), "c"))
    left = optimize(tree, retrieve=look_up)
    assert left == tree
    assert awaits_retrieval(left)
    assert not awaits_retrieval(optimize(Retrieve(Text("x"), "c"), retrieve=look_up))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"for_": "speed"}, ConfigError, "for_ is 'speed'; it must be 'cache' or 'attention'"),
        ({"for_": ["cache"]}, ConfigError, "it must be 'cache' or 'attention'"),
        ({"retrieve": "x"}, ConfigError, "retrieve is 'x'; it must be a function"),
        ({"arity": 1}, QueryError, "arity is 1; it must be an integer of at least 2"),
        ({"arity": 2.5}, QueryError, "arity is 2.5"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        optimize(Text("x"), **arguments)


def test_both_goals_can_be_had_one_after_the_other():
    names = Bag(tuple(Generate(Text(str(i))) for i in range(4)), independent=True)
    tree = optimize(optimize(Generate(names), "attention"))
    assert texts(tree) == texts(names)
    verify(tree, desugared=True)


def a_hundred_thousand_nodes_of_candidates():
    emails = (Generate(Seq((Text("S"), Text(str(i))))) for i in range(25_000))
    return Generate(Seq((Text("Which?"), Bag(tuple(emails), independent=True))))


def a_hundred_thousand_texts():
    return Generate(Bag(tuple(Text(str(i)) for i in range(100_000)), ","))


def joins_in_a_join():
    groups = (Bag((Fragment(str(i)), Prepare(Text(""))), independent=True) for i in range(20_000))
    return Generate(Bag(tuple(groups), independent=True))


def generations_twenty_thousand_deep():
    tree = Text("x")
    for _ in range(20_000):
        tree = Generate(Seq((Text(""), Bag((tree, Text("y")), independent=True))))
    return tree


@pytest.mark.parametrize(
    ("build", "goal"),
    [
        (a_hundred_thousand_nodes_of_candidates, "cache"),
        (a_hundred_thousand_texts, "attention"),
        (joins_in_a_join, "cache"),
        (generations_twenty_thousand_deep, "cache"),
        (generations_twenty_thousand_deep, "attention"),
    ],
)
def test_large_trees_are_optimized_in_seconds(build, goal):
    tree = build()
    with within(4):
        optimize(tree, goal)
