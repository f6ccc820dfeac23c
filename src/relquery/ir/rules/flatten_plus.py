"""Nested plus nodes are one plus (paper 002, section 5.1, Fig. 7c)."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Chat, Generate, Node, Prepare


def flatten_plus(node: Node) -> Node | None:
    """plus(plus(x, ...), prepare(plus(y, ...)), ...) => plus(x, ..., prepare(y), ..., ...)

    Generations in a prepared plus need no prepare: they are in the cache with their input anyway.
    """
    if not _is_plus(node) or not any(_holds_plus(child) for child in node.children):
        return None
    children: list[Node] = []
    todo: list[tuple[Node, bool]] = [(node, False)]
    while todo:
        current, prepared = todo.pop()
        if isinstance(current, Bag) and current.independent:
            todo += ((child, prepared) for child in reversed(current.children))
        elif isinstance(current, Prepare) and _is_plus(current.input):
            todo.append((current.input, True))
        elif prepared and not isinstance(current, Generate | Chat | Prepare):
            children.append(Prepare(current))
        else:
            children.append(current)
    return Bag(tuple(children), independent=True)


def _is_plus(node: object) -> bool:
    return isinstance(node, Bag) and node.independent


def _holds_plus(child: object) -> bool:
    return _is_plus(child) or (isinstance(child, Prepare) and _is_plus(child.input))
