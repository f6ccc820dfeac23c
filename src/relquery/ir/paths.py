"""The path of a node in a tree, walks over all nodes, and copies with other children."""

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

_WORDS: dict[type, str] = {
    Seq: "seq",
    Generate: "generate",
    Prepare: "prepare",
    Chat: "chat",
    Retrieve: "retrieve",
    Fragment: "fragment",
}
_ENDS = 6  # steps that a long path keeps at each end


def word(node: Node) -> str:
    """The node's first word in the text form."""
    if isinstance(node, Text):
        return node.role.value
    if isinstance(node, Bag):
        return "plus" if node.independent else "bag"
    return _WORDS[type(node)]


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

    ancestors: from the root down, each with the index of the child that the path goes through. In
        a deep path, a count replaces the middle.
    """
    shown: list[str] = []
    if len(ancestors) > 2 * _ENDS:
        shown += map(_step, ancestors[:_ENDS])
        shown.append(f"… {len(ancestors) - 2 * _ENDS} more …")
        ancestors = ancestors[-_ENDS:]
    return "/".join([*shown, *map(_step, ancestors), word(node)])


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


def _step(ancestor: tuple[Node, int]) -> str:
    node, index = ancestor
    return word(node) if len(node.children) == 1 else f"{word(node)}[{index}]"


def distinct(node: Node) -> Iterator[Node]:
    """This node and all its descendants, parents first; each distinct node once."""
    seen = {id(node)}
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        for child in reversed(children_of(current)):
            if id(child) not in seen:
                seen.add(id(child))
                todo.append(child)


def children_first(root: Node) -> list[Node]:
    """All distinct nodes, children before parents."""
    order: list[Node] = []
    seen = {id(root)}
    path = [(root, iter(children_of(root)))]
    while path:
        node, rest = path[-1]
        for child in rest:
            if id(child) not in seen:
                seen.add(id(child))
                path.append((child, iter(children_of(child))))
                break
        else:
            order.append(node)
            path.pop()
    return order


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
