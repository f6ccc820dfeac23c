"""Chat completion is a generation over an ordered join (paper 002, section 5.1, Fig. 7a)."""

from __future__ import annotations

from relquery.ir.nodes import Chat, Generate, Node, Seq


def desugar_chat(node: Node) -> Node | None:
    """chat(x, ...) => generate(seq(x, ...))"""
    if isinstance(node, Chat):
        return Generate(Seq(node.children), node.sampling)
    return None
