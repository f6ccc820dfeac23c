"""What must hold across a tree, and the spot where it does not."""

from __future__ import annotations

import pytest

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.ir.text import parse_tree
from relquery.ir.verify import verify
from tests.cases import case_file


def test_a_tree_that_asks_nothing_is_an_error_at_its_spot() -> None:
    for text, message in case_file(__file__, "verify_refused.txt"):
        with pytest.raises(QueryError, match=message):
            verify(parse_tree(text))


def test_a_tree_of_two_to_the_thousand_nodes_that_share_is_verified() -> None:
    tree: Node = Generate(Text("x"))
    for _ in range(1000):
        tree = Bag((tree, tree), independent=True)
    verify(tree)


def test_a_deep_tree_is_verified_and_its_spot_is_short() -> None:
    tree = Generate(Seq(()))
    for _ in range(10_000):
        tree = Generate(tree)
    with pytest.raises(QueryError, match=r"generate/… 9,?988 more …/generate") as raised:
        verify(tree)
    assert len(str(raised.value)) < 400
