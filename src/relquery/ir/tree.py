"""What all nodes of a tree have in common: comparing, hashing and printing without recursion.

Trees may be a million nodes wide or deep, and a subtree may occur in several places.
"""

from __future__ import annotations

from collections.abc import Iterator


class Tree:
    """A node and its descendants. Two trees are equal if `own` and their children are equal.

    Not an ABC: rules check node types millions of times, and isinstance is slow for ABCs.
    """

    __slots__ = ()

    @property
    def children(self) -> tuple[Tree, ...]:
        """The child nodes, in order."""
        return ()

    @property
    def own(self) -> tuple[object, ...]:
        """The node's own values, without its children."""
        return ()

    @property
    def head(self) -> str:
        """The node's line in the text form (see ir.forms.text); for plain kinds, their name."""
        return type(self).__name__.lower()

    def walk(self) -> Iterator[Tree]:
        """This node and all its descendants, parents first, children in order."""
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
        seen: set[tuple[int, int]] = set()
        while todo:
            a, b = todo.pop()
            pair = id(a), id(b)
            if a is b or pair in seen:
                continue
            if type(a) is not type(b) or a.own != b.own or len(a.children) != len(b.children):
                return False
            if a.children:
                seen.add(pair)
                todo += zip(a.children, b.children, strict=True)
        return True

    def __hash__(self) -> int:
        hashes: dict[int, int] = {}
        todo: list[Tree] = [self]
        while todo:
            node = todo[-1]
            children = node.children
            missing = [child for child in children if id(child) not in hashes]
            if missing and id(node) not in hashes:
                todo += missing
                continue
            todo.pop()
            if id(node) not in hashes:
                below = tuple(hashes[id(child)] for child in children)
                hashes[id(node)] = hash((type(node), node.own, below))
        return hashes[id(self)]

    def __copy__(self) -> Tree:
        return self  # nothing in a tree can change

    def __deepcopy__(self, memo: object) -> Tree:
        return self
