"""A node without text or generations adds nothing to a join without separators."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Fragment, Node, Prepare, Seq, Text
from relquery.ir.paths import children_of
from relquery.ir.rebuild import with_children


def drop_empty(node: Node) -> Node | None:
    """seq(user "", seq(), x) => seq(x), and likewise for plus and for a bag without a separator

    With a separator, an empty child is visible: bag ","(user "", user "x") is the text ",x".
    """
    if not isinstance(node, Seq | Bag) or (isinstance(node, Bag) and node.separator):
        return None
    children = children_of(node)
    kept = tuple(child for child in children if not _is_empty(child))
    return None if len(kept) == len(children) else with_children(node, kept)


def _is_empty(node: Node) -> bool:
    if isinstance(node, Prepare):
        node = node.input
    if isinstance(node, Text | Fragment):
        return not node.content
    return isinstance(node, Seq | Bag) and not node.children
