"""A join of one child is the child."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Chat, Generate, Node, Seq


def unwrap_single(node: Node) -> Node | None:
    """seq(x) => x and bag ""(x) => x, unless x is a generation

    A generation keeps its join, for it must not become the child of a plus, where it would stand
    with its input. A plus of one child stays as well: it says that the child does not attend to
    what stands before it. Even where nothing does, it keeps the child in the form in which it was
    prepared, and in which it is found at any other position. So does a bag with a separator, which
    makes one message of its child and the texts beside it.
    """
    if not isinstance(node, Seq | Bag) or len(node.children) != 1:
        return None
    if isinstance(node, Bag) and (node.independent or node.separator):
        return None
    (child,) = node.children
    return None if isinstance(child, Generate | Chat) else child
