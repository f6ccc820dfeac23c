"""A piece of a corpus is text that is prepared before its use (paper 002, section 5.1, note 2)."""

from __future__ import annotations

from relquery.ir.nodes import Fragment, Node, Prepare, Text


def desugar_fragment(node: Node) -> Node | None:
    """fragment "x" => prepare(user "x"), which `drop_prepare` takes away outside of plus"""
    if isinstance(node, Fragment):
        return Prepare(Text(node.content))
    return None
