"""The optimizer keeps what is asked, comes to an end, and says so for trees of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from relquery import errors
from relquery.errors import QueryError
from relquery.ir.nodes import MAX_DEPTH, Bag, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.optimize import RULES, Goal, optimize, rewrite
from relquery.ir.paths import verify
from relquery.ir.rules import reduce_tree
from relquery.ir.text import parse_tree
from tests.cases import case_file
from tests.ir.meaning import assert_desugared, look_up, meaning
from tests.ir.strategies import local_queries, queries
from tests.pace import within

goals = st.sampled_from(["cache", "attention"])


def texts(tree: Node) -> Counter[str]:
    """How often each text that is not empty stands in the tree."""
    leaves = (node for node in tree.walk() if isinstance(node, Text | Fragment))
    return Counter(node.content for node in leaves if node.content)


@given(local_queries)
def test_a_tree_optimized_for_the_cache_asks_what_it_asked_before(tree: Node) -> None:
    assert meaning(optimize(tree)) == meaning(tree)


@given(local_queries, st.integers(2, 4))
def test_reduction_repeats_texts_and_loses_none(tree: Node, arity: int) -> None:
    before, after = texts(tree), texts(optimize(tree, "attention", arity=arity))
    assert after.keys() == before.keys()
    assert after >= before


@given(queries, goals)
def test_an_optimized_tree_is_left_as_it_is(tree: Node, goal: Goal) -> None:
    once = optimize(tree, goal, retrieve=look_up)
    assert optimize(once, goal, retrieve=look_up) == once


@given(queries, goals)
def test_an_optimized_tree_is_in_core_operators(tree: Node, goal: Goal) -> None:
    optimized = optimize(tree, goal, retrieve=look_up)
    try:
        verify(optimized)
    except QueryError:
        return  # asked nothing from the start
    assert_desugared(optimized)


@given(local_queries, goals)
def test_every_rule_leaves_a_tree_that_verifies(tree: Node, goal: Goal) -> None:
    try:
        verify(tree)
    except QueryError:
        assume(False)
    simple = rewrite(tree, RULES[goal], verified=True)
    if goal == "attention":
        rewrite(simple, (*RULES[goal], reduce_tree(2)), verified=True)


def test_every_judge_reads_at_most_as_many_as_the_arity() -> None:
    names = Bag(tuple(Generate(Text(str(i))) for i in range(100)), independent=True)
    tree = optimize(Generate(Seq((Text("Which?"), names))), "attention", arity=3)
    joins = [node for node in tree.walk() if isinstance(node, Bag)]
    assert max(len(join.children) for join in joins) == 3
    assert texts(tree) == texts(names) + Counter({"Which?": len(joins)})


def test_the_optimized_rag_query_is_that_of_figure_9b() -> None:
    chat = parse_tree('chat\n  system "S"\n  retrieve "c" limit=2\n    user "Who?"\n  user "Who?"')
    assert str(optimize(chat, retrieve=look_up)) == (
        'generate\n  seq\n    system "S"\n    plus\n'
        '      prepare\n        user "c 1: Who?"\n      prepare\n        user "c 2: Who?"\n'
        '    user "Who?"'
    )


def test_a_question_is_looked_up_once() -> None:
    asked: list[tuple[str, str, int]] = []

    def look_up_once(corpus: str, text: str, limit: int) -> list[str]:
        asked.append((corpus, text, limit))
        return ["found"]

    same = [Retrieve(Text("x"), "c"), Retrieve(Seq((Text("x"),)), "c"), Retrieve(Text("y"), "c")]
    optimize(Generate(Seq(tuple(same))), retrieve=look_up_once)
    assert sorted(asked) == [("c", "x", 5), ("c", "y", 5)]


def test_a_retrieve_is_an_error_without_a_function_that_looks_up() -> None:
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
def test_what_looks_up_gives_at_most_so_many_texts(found: Any, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        optimize(Retrieve(Text("x"), "c", 1), retrieve=lambda *_: found)


def test_a_retrieve_that_awaits_an_answer_stays() -> None:
    tree = Generate(Retrieve(Generate(Text("x")), "c"))
    assert optimize(tree, retrieve=look_up) == tree


def test_arguments_that_mean_nothing_are_refused() -> None:
    for arguments, error, message in case_file(__file__, "optimize_refused.txt"):
        with pytest.raises(getattr(errors, error), match=message):
            optimize(Text("x"), **eval(arguments))


def joins_in_a_join(part: int) -> Node:
    groups = (
        Bag((Fragment(str(i)), Prepare(Text(""))), independent=True) for i in range(20_000 // part)
    )
    return Generate(Bag(tuple(groups), independent=True))


def generations_deep(part: int) -> Node:
    del part
    tree: Node = Text("x")
    for _ in range(MAX_DEPTH // 4):  # each gets a plus around its input
        tree = Generate(Seq((Text(""), Bag((tree, Text("y")), independent=True))))
    return tree


@pytest.mark.parametrize("build", [joins_in_a_join, generations_deep])
def test_deep_and_wide_trees_are_optimized_in_seconds(build: Callable[[int], Node]) -> None:
    with within(4):
        optimize(build(4))
