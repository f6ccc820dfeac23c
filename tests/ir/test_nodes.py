"""A node that exists is well formed."""

from __future__ import annotations

import pytest

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Seq, Text


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Text(7), "Text contains an int; it must contain text"),
        (lambda: Text("x", "user"), "Text has the role 'user'"),
        (lambda: Seq([Text("x")]), "Seq has a list of children; they must be a tuple"),
        (lambda: Seq(("x",)), "Seq has a str as a child"),
        (lambda: Bag((None,), ","), "Bag has a NoneType as a child"),
        (lambda: Generate("x"), "Generate has a str as a child"),
    ],
)
def test_a_malformed_node_cannot_be_built(build, message):
    with pytest.raises(QueryError, match=message):
        build()


def test_nodes_of_equal_content_are_equal_and_hash_alike():
    assert {Seq((Text("a"),)), Seq((Text("a"),))} == {Seq((Text("a"),))}
