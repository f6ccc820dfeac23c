"""Paths in trees, distinct nodes, copies, and checks of a whole tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from relquery.errors import QueryError, type_of
from relquery.ir.nodes import (
    NODES,
    Bag,
    Chat,
    Fragment,
    Generate,
    Node,
    Prepare,
    Retrieve,
    Seq,
    Text,
)


def word(node: Node) -> str:
    """The node's first word in the text form."""
    return node.head.partition(" ")[0]


def check_node(given: object) -> None:
    """Raise QueryError unless `given` is a node of a tree."""
    if not isinstance(given, NODES):
        raise QueryError(
            f"The query is {type_of(given)}; expected a tree from relquery.span, e.g. "
            "span.generate('Why?')."
        )


def children_of(node: Node) -> tuple[Node, ...]:
    """`node.children`, typed as nodes."""
    return cast("tuple[Node, ...]", node.children)  # quoted: a type is built per call


def path(ancestors: Sequence[tuple[Node, int]], node: Node) -> str:
    """A path such as `generate/seq[1]/plus[0]/user`.

    ancestors: from the root down, each with the index of the child that the path goes through.
    """
    steps = [
        word(above) if len(above.children) == 1 else f"{word(above)}[{index}]"
        for above, index in ancestors
    ]
    return "/".join([*steps, word(node)])


Parents = dict[int, tuple[Node, int]]
"""By id of a node, a node that it is a child of, and as which one."""


def path_from(parents: Parents, node: Node) -> str:
    """The path of a node in a tree; the first one if there are several."""
    ancestors: list[tuple[Node, int]] = []
    current = node
    while id(current) in parents:
        ancestors.append(parents[id(current)])
        current = ancestors[-1][0]
    return path(ancestors[::-1], node)


def distinct(node: Node, seen: set[int] | None = None) -> Iterator[Node]:
    """This node and all its descendants, parents first; each distinct node once.

    seen: ids of nodes that are left out; those found are added.
    """
    seen = set() if seen is None else seen
    seen.add(id(node))
    yield node
    for child in children_of(node):
        if id(child) not in seen:
            yield from distinct(child, seen)


def children_first(node: Node, seen: set[int] | None = None) -> Iterator[Node]:
    """All distinct nodes, children before parents. seen: see `distinct`."""
    seen = set() if seen is None else seen
    seen.add(id(node))
    for child in children_of(node):
        if id(child) not in seen:
            yield from children_first(child, seen)
    yield node


def awaits_answer(node: Node) -> bool:
    """Whether the node's text contains an answer that is known only during execution."""
    return any(isinstance(below, Generate | Chat) for below in distinct(node))


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
    readable = _readable(node)
    for current in nodes:
        if isinstance(current, Generate | Chat | Retrieve) and id(current) not in readable:
            spot = path_from(parents, current)
            raise QueryError(f"At {spot}: {_NOTHING_TO_READ[type(current)]}")


_NOTHING_TO_READ: dict[type, str] = {
    Generate: "the model has nothing to read. Give it an input that is not empty.",
    Chat: "the model has nothing to read. Give the chat a message that is not empty.",
    Retrieve: "there is nothing to look for. Give the query a text that is not empty.",
}


def _readable(root: Node) -> set[int]:
    """Ids of the nodes that contain something to read. A generation does not count itself.

    An answer, or the result from a corpus, counts as something to read.
    """
    solid: set[int] = set()  # nodes that add to the input of a parent
    readable: set[int] = set()
    for node in children_first(root):
        if isinstance(node, Text | Fragment):
            if node.content:
                solid.add(id(node))
        elif any(id(child) in solid for child in node.children) or _separates(node):
            readable.add(id(node))
            solid.add(id(node))
        elif isinstance(node, Generate | Chat | Retrieve):
            solid.add(id(node))
    return readable


def _separates(node: Node) -> bool:
    return isinstance(node, Bag) and bool(node.separator) and len(node.children) > 1
