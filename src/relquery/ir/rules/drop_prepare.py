"""Outside plus, a preparation means the same as its input."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Node, Prepare
from relquery.ir.paths import children_of
from relquery.ir.rebuild import with_children


def drop_prepare(node: Node) -> Node | None:
    """seq(prepare(x), ...) => seq(x, ...), and likewise for all parents except plus

    There x attends to everything before it, so states prepared for x alone are of no use.
    """
    if isinstance(node, Bag) and node.independent:
        return None
    children = children_of(node)
    if Prepare not in map(type, children):
        return None
    bare = (child.input if isinstance(child, Prepare) else child for child in children)
    return with_children(node, tuple(bare))
