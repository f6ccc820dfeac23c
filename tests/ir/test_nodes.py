"""A node that exists is well formed."""

from __future__ import annotations

import pytest

from relquery.errors import QueryError
from relquery.ir import nodes
from relquery.ir.nodes import Seq, Text
from tests.cases import case_file


def test_a_malformed_node_cannot_be_built() -> None:
    for built, message in case_file(__file__, "nodes_refused.txt"):
        with pytest.raises(QueryError, match=message):
            eval(built, dict(vars(nodes)))


def test_nodes_of_equal_content_are_equal_and_hash_alike() -> None:
    assert {Seq((Text("a"),)), Seq((Text("a"),))} == {Seq((Text("a"),))}
