"""A fragment of a corpus is text prepared before it is used (paper 002, section 5.1, note 2)."""

from __future__ import annotations

from relquery.ir.nodes import Fragment, Node, Prepare, Text


def desugar_fragment(node: Node) -> Node | None:
    """fragment "x" => prepare(user "x"), which `drop_prepare` removes outside plus"""
    if isinstance(node, Fragment):
        return Prepare(Text(node.content))
    return None
