"""A join with one child is that child."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Chat, Generate, Node, Seq


def unwrap_single(node: Node) -> Node | None:
    """seq(x) => x and bag ""(x) => x, unless x is a generation

    A generation keeps its join, because it must not become the child of a plus, where it would
    include its input. A plus with one child also stays. It says that the child does not attend to
    the text before it. Even if there is no such text, the plus keeps the child in the form in which
    it was prepared, and in which it is found at any other position. A bag with a separator stays
    too: it makes one message of its child and the texts next to it.
    """
    if not isinstance(node, Seq | Bag) or len(node.children) != 1:
        return None
    if isinstance(node, Bag) and (node.independent or node.separator):
        return None
    (child,) = node.children
    return None if isinstance(child, Generate | Chat) else child
