"""Rules are applied until none applies, whatever the size and shape of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from relquery.errors import QueryError
from relquery.ir import optimize
from relquery.ir.nodes import MAX_DEPTH, Bag, Generate, Node, Seq, Text
from relquery.ir.optimize import RewriteStep, rewrite
from relquery.ir.rules import desugar_chat, flatten_seq, unwrap_single
from relquery.ir.text import parse_tree
from tests.ir.meaning import RULES

A, B = Text("a"), Text("b")


def test_a_tree_to_which_no_rule_applies_is_given_back_itself() -> None:
    tree = parse_tree('generate\n  seq\n    user "a"\n    user "b"')
    assert rewrite(tree, [flatten_seq, unwrap_single]) is tree


def test_a_rule_applies_to_what_another_made() -> None:
    tree = Seq((Bag((Seq((A, B)),)), A))
    assert rewrite(tree, [flatten_seq, unwrap_single]) == Seq((A, B, A))


def test_the_trace_says_what_was_replaced_by_what_and_where() -> None:
    tree = parse_tree('seq\n  user "a"\n  plus\n    user "b"\n    chat\n      user "c"')
    trace: list[RewriteStep] = []
    after = rewrite(tree, [desugar_chat], trace)
    (step,) = trace
    assert (step.rule, step.where) == ("desugar_chat", "seq[1]/plus[1]/chat")
    assert step.before is tree.children[1].children[1]
    assert step.after is after.children[1].children[1]


def test_a_subtree_in_several_places_is_rewritten_once_and_stays_shared() -> None:
    tree = parse_tree('chat\n  user "x"')
    for _ in range(20):  # as a tree, a million nodes
        tree = Bag((tree, tree), ",")
    trace: list[RewriteStep] = []
    after = rewrite(tree, [desugar_chat], trace)
    assert len(trace) == 1
    assert after.children[0] is after.children[1]


def swap(node: Node) -> Node | None:
    if isinstance(node, Seq) and len(node.children) == 2:
        return Seq(node.children[::-1])
    return None


def test_rules_that_never_end_are_an_error_that_names_them_and_the_place() -> None:
    tree = Bag((A, Seq((A, Generate(B)))), ",")
    with pytest.raises(QueryError, match=r"does not terminate.*bag\[1\]/seq.*swap"):
        rewrite(tree, [swap])


def test_a_replacement_that_is_no_query_is_found_when_verified() -> None:
    def empty(node: Node) -> Node | None:
        return Generate(Seq(())) if isinstance(node, Generate) and node.input is A else None

    with pytest.raises(QueryError, match=r"Rule empty broke the tree at seq\[1\]/generate"):
        rewrite(Seq((B, Generate(A))), [empty], verified=True)


def test_a_deep_nest_is_flattened_at_once() -> None:
    left, right, size = Seq((A,)), Seq((A,)), MAX_DEPTH - 1
    for _ in range(size):
        left, right = Seq((left, B)), Seq((B, right))
    assert rewrite(left, [flatten_seq]) == Seq((A, *[B] * size))
    assert rewrite(right, [flatten_seq]) == Seq((*[B] * size, A))


FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", RULES)
def test_a_rule_gives_what_its_golden_file_says(name: str) -> None:
    for case in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("\n\n"):
        said, _, trees = case.partition("\n")
        before, _, after = trees.strip().partition("\n=>\n")
        tree = parse_tree(before)
        assert str(rewrite(tree, RULES[name])) == (before if after == "(same)" else after), said
        assert str(tree) == before


def test_every_rule_has_a_golden_file_and_its_function_bears_its_name() -> None:
    used = {rule.__name__ for rules in optimize.RULES.values() for rule in rules}
    assert used | {"desugar_retrieve", "reduce_tree"} == set(RULES)
    assert set(RULES) == {file.stem for file in FOLDER.glob("*.txt")}
    assert all(rules[0].__name__ == name for name, rules in RULES.items())
