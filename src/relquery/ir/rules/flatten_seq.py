"""Nested ordered joins are one ordered join."""

from __future__ import annotations

from relquery.ir.nodes import Node, Seq


def flatten_seq(node: Node) -> Node | None:
    """seq(seq(x, y), z) => seq(x, y, z)"""
    if not isinstance(node, Seq) or not any(isinstance(child, Seq) for child in node.children):
        return None
    children: list[Node] = []
    todo: list[Node] = [node]  # flatten all levels at once: one level at a time would be quadratic
    while todo:
        current = todo.pop()
        if isinstance(current, Seq):
            todo += reversed(current.children)
        else:
            children.append(current)
    return Seq(tuple(children))
