"""Checks across a whole tree, which the constructor of one node cannot make."""

from __future__ import annotations

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Retrieve, Text
from relquery.ir.paths import Parents, check_node, children_first, children_of, distinct, path_from

MAX_NODES = 20_000_000
_COUNTED = 10**24  # counting stops here


def verify(node: Node) -> None:
    """Raise QueryError, naming the node's path, if the tree is not a query that can be run.

    Every generation must have something to read: text, or the result of another generation or of
    a corpus.
    """
    check_node(node)
    nodes = list(distinct(node))
    parents: Parents = {}
    for parent in nodes:
        for index, child in enumerate(children_of(parent)):
            if not isinstance(child, Text):
                parents.setdefault(id(child), (parent, index))
    readable = _readable(nodes)
    for current in nodes:
        if isinstance(current, Generate | Chat | Retrieve) and id(current) not in readable:
            spot = path_from(parents, current)
            raise QueryError(f"At {spot}: {_NOTHING_TO_READ[type(current)]}")


_NOTHING_TO_READ: dict[type, str] = {
    Generate: "the model has nothing to read. Give it an input that is not empty.",
    Chat: "the model has nothing to read. Give the chat a message that is not empty.",
    Retrieve: "there is nothing to look for. Give the query a text that is not empty.",
}


def _readable(nodes: list[Node]) -> set[int]:
    """Ids of the nodes that contain something to read. A generation does not count itself.

    An answer, or the result from a corpus, counts as something to read.
    """
    solid: set[int] = set()  # nodes that add to the input of a parent
    readable: set[int] = set()
    for node in children_first(nodes[0]):
        if isinstance(node, Text | Fragment):
            if node.content:
                solid.add(id(node))
        elif any(id(child) in solid for child in node.children) or _separates(node):
            readable.add(id(node))
            solid.add(id(node))
        elif isinstance(node, Generate | Chat | Retrieve):
            solid.add(id(node))
    return readable


def check_size(node: Node, most: int = MAX_NODES) -> None:
    """Raise QueryError for a tree of more than `most` nodes, counting a shared node each time.

    A tree may be small in memory only because it shares nodes.
    """
    sizes: dict[int, int] = {}
    for each in children_first(node):
        size = 1 + sum(sizes[id(child)] for child in each.children)
        sizes[id(each)] = min(size, _COUNTED)  # it may double with each level
    size = sizes[id(node)]
    if size > most:
        more = "more than " if size == _COUNTED else ""
        raise QueryError(
            f"The query has {more}{size:,} nodes, counting repeats; the limit is {most:,}. "
            "Repeat less, or split it into several queries."
        )


def _separates(node: Node) -> bool:
    return isinstance(node, Bag) and bool(node.separator) and len(node.children) > 1
