"""What all nodes of a tree have in common: comparing, hashing, printing, without recursion.

Trees may be a million nodes wide or deep, and a subtree may stand in several places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator


class Tree(ABC):
    """A node and all below it. Two are equal if they say the same and their children are equal."""

    __slots__ = ()

    @property
    def children(self) -> tuple[Tree, ...]:
        """The nodes right below, in order."""
        return ()

    @property
    def own(self) -> tuple[object, ...]:
        """What the node itself says, children aside."""
        return ()

    @property
    @abstractmethod
    def head(self) -> str:
        """The node's line in the text form (see relquery.ir.text)."""

    def walk(self) -> Iterator[Tree]:
        """This node and all below it, parents first, children in order."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += reversed(node.children)

    def __str__(self) -> str:
        lines: list[str] = []
        todo: list[tuple[Tree, int]] = [(self, 0)]
        while todo:
            node, depth = todo.pop()
            lines.append("  " * depth + node.head)
            todo += [(child, depth + 1) for child in reversed(node.children)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.head[:60]!r}, children: {len(self.children)}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        todo: list[tuple[Tree, Tree]] = [(self, other)]
        while todo:
            a, b = todo.pop()
            if a is b:
                continue
            if type(a) is not type(b) or a.own != b.own or len(a.children) != len(b.children):
                return False
            todo += zip(a.children, b.children, strict=True)
        return True

    def __hash__(self) -> int:
        order: list[Tree] = [self]
        first_child: list[int] = []
        for node in order:  # grows meanwhile: level by level
            first_child.append(len(order))
            order += node.children
        hashes = [0] * len(order)
        for i in range(len(order) - 1, -1, -1):
            node, begin = order[i], first_child[i]
            below = tuple(hashes[begin : begin + len(node.children)])
            hashes[i] = hash((type(node), node.own, below))
        return hashes[0]
