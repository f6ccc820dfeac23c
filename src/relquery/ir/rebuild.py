"""Copies a node with different children."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Chat, Generate, Node, Prepare, Retrieve, Seq


def with_children(node: Node, children: tuple[Node, ...]) -> Node:
    """A copy of `node` with these children, as many as its kind takes."""
    match node:
        case Seq():
            node = Seq(children)
        case Bag():
            node = Bag(children, node.separator, node.independent)
        case Chat():
            node = Chat(children, node.sampling)
        case Generate():
            node = Generate(children[0], node.sampling)
        case Prepare():
            node = Prepare(children[0])
        case Retrieve():
            node = Retrieve(children[0], node.corpus, node.limit)
    return node
