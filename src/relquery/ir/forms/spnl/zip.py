"""The operator `zip` of the wire form: what the first says, in between all that the second says.

As the package does it (version 0.22.1), zip of a and seq(x, y) is seq(a, x, a, y), and so for par,
plus and cross; zip of a and a message x is seq(a, x). Where a is a plus of several, each of the
second's becomes one: zip of plus(a, b) and seq(x, y) is seq(plus(a, b, x), plus(a, b, y)). A join
of one child counts as that child. What stands in several places is one answer there, where ours
would be drawn anew in each.
"""

from __future__ import annotations

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Retrieve, Seq
from relquery.ir.paths import children_of, distinct
from relquery.ir.rebuild import with_children


def interleave(first: tuple[Node, ...], second: tuple[Node, ...]) -> Node:
    """The tree of a zip. first, second: nodes that its operands come to.

    Raises QueryError where it depends on what a retrieval gives, and where a generation at random
    would stand in several places.
    """
    said, join = _plain(one(first)), _plain(one(second))
    if isinstance(join, Retrieve):
        raise QueryError(
            "how many passages the second retrieves is known only when it is run. Retrieve them "
            "first, and write them into a plus."
        )
    items = _items(join)
    if len(items) > 1 and any(map(_is_random, distinct(said))):
        raise QueryError(
            "the first holds a generation at random that several places would read. Set its "
            "temperature to 0, or ask for it in a query of its own."
        )
    parts: list[Node] = []
    for item in items:
        parts += [_added(said, item)] if _is_plus(said) else [said, item]
    return with_children(join if isinstance(join, Seq | Bag) else Seq(()), tuple(parts))


def times_interleaved(second: tuple[Node, ...]) -> int:
    """In how many places the first stands."""
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
