"""Turns a query into a tree in which each generation is executed once."""

from __future__ import annotations

from dataclasses import replace

from relquery.errors import QueryError
from relquery.ir.nodes import Generate, Node
from relquery.ir.paths import children_of
from relquery.ir.rebuild import with_children
from relquery.prompt import Sampling

MAX_DRAWS = 100_000  # random draws and the nodes above them, counted once per place
_Asked = tuple[int, Sampling]


def unshare(node: Node) -> Node:
    """The same query with equal greedy generations merged and random draws kept apart.

    Each Generate object is executed once, however many places read it. A random generation
    (temperature above 0) is drawn again in each place where it is used, even if it is one node, as
    `repeat` makes it. With a seed, equal draws use that seed, the next one and so on. A generation
    that reads a draw then runs once per draw; all other equal generations run once.

    Raises QueryError for more than MAX_DRAWS nodes in such places.
    """
    merged = _Merged(node)
    seeds = _Seeds()
    count = 0
    path: list[tuple[Node, list[Node]]] = [(node, [])]
    while True:
        current, built = path[-1]
        children = children_of(current)
        while len(built) < len(children) and not merged.drawn[id(children[len(built)])]:
            built.append(merged.node[id(children[len(built)])])
        if len(built) < len(children):
            path.append((children[len(built)], []))
            continue
        path.pop()
        if merged.drawn[id(current)]:
            count += 1
            if count > MAX_DRAWS:
                raise QueryError(
                    f"The query makes more than {MAX_DRAWS:,} random draws, counting nested "
                    "repeats. Repeat less, or split it into several queries."
                )
            new = with_children(current, tuple(built))
            if isinstance(new, Generate) and new.sampling.temperature > 0:
                new = seeds.give(new, merged.number[id(children_of(current)[0])])
        else:
            new = merged.node[id(current)]
        if not path:
            return new
        path[-1][1].append(new)


class _Merged:
    """The distinct nodes of a tree, numbered so that equal ones have one number and one object.

    drawn: whether a node or one below it is drawn at random.
    """

    def __init__(self, root: Node) -> None:
        self.number: dict[int, int] = {}
        self.drawn: dict[int, bool] = {}
        self.node: dict[int, Node] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._nodes: list[Node] = []
        for node in _children_first(root):
            self._add(node)

    def _add(self, node: Node) -> None:
        children = children_of(node)
        key = (type(node), node.own, tuple(self.number[id(child)] for child in children))
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._nodes):
            below = tuple(self.node[id(child)] for child in children)
            same = all(a is b for a, b in zip(below, children, strict=True))
            self._nodes.append(node if same else with_children(node, below))
        self.number[id(node)] = number
        self.node[id(node)] = self._nodes[number]
        self.drawn[id(node)] = any(self.drawn[id(child)] for child in children) or (
            isinstance(node, Generate) and node.sampling.temperature > 0
        )


class _Seeds:
    """Gives each seeded draw its own seed, so that two draws of one question differ."""

    def __init__(self) -> None:
        self._next: dict[tuple[_Asked, int], int] = {}

    def give(self, node: Generate, input: int) -> Generate:
        """The generation with its own seed. input: the number of the node that it reads."""
        seed = node.sampling.seed
        if seed is None:  # the backend picks a new one
            return node
        asked = (input, replace(node.sampling, seed=None))
        free = seed
        while (asked, free) in self._next:
            free = self._next[asked, free]
        self._next[asked, free] = self._next[asked, seed] = free + 1
        if free == seed:
            return node
        return Generate(node.input, replace(node.sampling, seed=free))


def _children_first(root: Node) -> list[Node]:
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
