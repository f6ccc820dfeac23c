"""The operator `zip` of the wire form: repeats the first operand before each item of the second.

As in the package (version 0.22.1), zip of a and seq(x, y) is seq(a, x, a, y), and likewise for par,
plus and cross; zip of a and a message x is seq(a, x). If a is a plus of several children, each item
of the second operand is added to a copy of it: zip of plus(a, b) and seq(x, y) is
seq(plus(a, b, x), plus(a, b, y)). A join of one child counts as that child. A generation in several
places gives one answer in the package, but ours would be drawn again in each place.
"""

from __future__ import annotations

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Retrieve, Seq
from relquery.ir.paths import children_of, distinct
from relquery.ir.rebuild import with_children


def interleave(first: tuple[Node, ...], second: tuple[Node, ...]) -> Node:
    """The tree of a zip. first, second: the nodes built from its operands.

    Raises QueryError if it depends on the result of a retrieval, or if a random generation would
    occur in several places.
    """
    said, join = _plain(one(first)), _plain(one(second))
    if isinstance(join, Retrieve):
        raise QueryError(
            "the number of passages that the second operand retrieves is known only when it runs. "
            "Retrieve them first and write them into a plus."
        )
    items = _items(join)
    if len(items) > 1 and any(map(_is_random, distinct(said))):
        raise QueryError(
            "the first operand contains a random generation that several places would read. Set "
            "its temperature to 0, or run it in a separate query."
        )
    parts: list[Node] = []
    for item in items:
        parts += [_added(said, item)] if _is_plus(said) else [said, item]
    return with_children(join if isinstance(join, Seq | Bag) else Seq(()), tuple(parts))


def times_interleaved(second: tuple[Node, ...]) -> int:
    """The number of places in which the first operand occurs."""
    return len(_items(_plain(one(second))))


def one(nodes: tuple[Node, ...]) -> Node:
    """One node for what may be several (repeat, map) or none (print, monad)."""
    return nodes[0] if len(nodes) == 1 else Seq(nodes)


def _plain(node: Node) -> Node:
    while isinstance(node, Seq | Bag) and len(node.children) == 1:
        (node,) = children_of(node)
    return node


def _items(join: Node) -> tuple[Node, ...]:
    return children_of(join) if isinstance(join, Seq | Bag) else (join,)


def _is_plus(node: Node) -> bool:
    return isinstance(node, Bag | Retrieve)


def _added(plus: Node, item: Node) -> Node:
    children = children_of(plus) if isinstance(plus, Bag) else (plus,)
    return Bag((*children, item), independent=True)


def _is_random(node: Node) -> bool:
    return isinstance(node, Generate) and node.sampling.temperature > 0
