"""Nested commutative joins with the same separator are one commutative join."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Node


def flatten_bag(node: Node) -> Node | None:
    """bag ","(bag ","(x, y), z) => bag ","(x, y, z)

    An empty inner bag stays if there is a separator, because as a child it is followed by one.
    """
    if not isinstance(node, Bag) or node.independent:
        return None
    separator = node.separator
    if Bag not in map(type, node.children):
        return None
    if not any(_merges(child, separator) for child in node.children):
        return None
    children: list[Node] = []
    todo: list[Node] = list(reversed(node.children))
    while todo:
        current = todo.pop()
        if isinstance(current, Bag) and _merges(current, separator):
            todo += reversed(current.children)
        else:
            children.append(current)
    return Bag(tuple(children), separator)


def _merges(child: Node, separator: str) -> bool:
    return (
        isinstance(child, Bag)
        and not child.independent
        and child.separator == separator
        and bool(child.children or not separator)
    )
