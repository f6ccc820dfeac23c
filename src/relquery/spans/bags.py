"""Orders the bags in prompts so that each prompt shares as much as possible with other prompts.

Only the order inside a bag changes; what attends to what stays the same. A bag that contains an
answer, or passages not retrieved yet, keeps its order. So does every bag after it, because its
prefix is not known yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relquery.ir.nodes import Bag, Chat, Generate, Node, Retrieve
from relquery.ir.optimize import Step, rewrite
from relquery.ir.paths import children_of, distinct, with_children
from relquery.spans.orders import Orders, Row

# (text before a bag, its items) -> the items in order, or None while undecided.
_Decide = Callable[[bytes, Row], Row | None]


def order_bags(
    roots: Sequence[Node],
    orders: Orders,
    *,
    keep: bool = True,
    traces: Sequence[list[Step]] | None = None,
) -> list[Node]:
    """Optimised queries with their bags in order.

    orders: orders of earlier prompts. keep: whether these prompts will be sent, so that later ones
        can start like them. traces: one list per query; a Step is added per changed prompt.
    """
    if not any(map(_has_bag, roots)):
        return list(roots)
    decisions = _Decisions(orders)
    while True:
        steps: list[list[Step]] = [[] for _ in roots]
        found = [
            rewrite(root, [_rule(decisions.decide)], trace)
            for root, trace in zip(roots, steps, strict=True)
        ]
        if not decisions.decide_open():
            break
    if keep:
        decisions.keep()
    for trace, new in zip(traces or (), steps, strict=False):
        trace.extend(new)
    return found


_Items = frozenset[tuple[str, int]]


class _Decisions:
    """The orders of bags, decided together for all bags that follow the same text.

    Bags that follow other bags are decided later: only then is it known which prompts share a
    prefix.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._made: dict[tuple[bytes, _Items], Row] = {}
        self._open: dict[bytes, dict[_Items, Row]] = defaultdict(dict)

    def decide(self, head: bytes, row: Row) -> Row | None:
        """The items in order; None while undecided."""
        items = frozenset(Counter(row).items())
        made = self._made.get((head, items))
        if made is None:
            self._open[head].setdefault(items, row)
        return made

    def decide_open(self) -> bool:
        """Make all open decisions. Returns whether there were any."""
        open_, self._open = self._open, defaultdict(dict)
        for head, rows in open_.items():
            chosen = self._orders.choose(head, list(rows.values()))
            for items, row in zip(rows, chosen, strict=True):
                self._made[head, items] = row
        return bool(open_)

    def keep(self) -> None:
        """Record the decisions for later prompts."""
        for (head, _), row in self._made.items():
            self._orders.keep(head, row)


def beginnings(root: Node) -> list[str]:
    """The items of a query's bags, each with a hash of everything before it."""
    found: list[str] = []

    def note(head: bytes, row: Row) -> Row:
        name = hashlib.blake2b(head, digest_size=8)
        for item in row:
            name.update(f"{len(item)} {item}".encode())
            found.append(f"{name.hexdigest()} {item}")
        return row

    if _has_bag(root):
        rewrite(root, [_rule(note)])
    return list(dict.fromkeys(found))


def _has_bag(root: Node) -> bool:
    return any(_is_free(node) and len(node.children) > 1 for node in distinct(root))


def _is_free(node: Node) -> bool:
    return isinstance(node, Bag) and not node.independent


def _rule(decide: _Decide) -> Callable[[Node], Node | None]:
    def order_bags(node: Node) -> Node | None:
        """generate(bag(x, y)) => generate(bag(y, x))"""
        if not isinstance(node, Generate):
            return None
        input = _Ordering(decide).run(node.input)
        return None if input is node.input else Generate(input, node.sampling)

    return order_bags


class _Chain:
    """A sequence whose parts attend to all earlier parts: a prompt, child of plus or bag item.

    known: whether everything so far is known.
    """

    __slots__ = ("_hash", "known")

    def __init__(self, kind: str) -> None:
        self._hash = hashlib.blake2b(kind.encode(), digest_size=16)
        self.known = True

    def add(self, text: str) -> None:
        self._hash.update(f"{len(text)} {text}".encode())

    def head(self, bag: Bag) -> bytes:
        """A hash of the text before a bag and of the bag's separator."""
        copy = self._hash.copy()
        copy.update(f"bag {bag.separator}".encode())
        return copy.digest()


@dataclass(slots=True)
class _Place:
    """A node in progress. known: whether its text is known; children: those that are done."""

    node: Node
    chain: _Chain
    known: bool = True
    children: list[Node] = field(default_factory=list)


class _Ordering:
    """Orders the bags of one prompt, inner bags first, then from left to right."""

    def __init__(self, decide: _Decide) -> None:
        self._decide = decide

    def run(self, input: Node) -> Node:
        """The input of a generation with its bags in order; itself if nothing changes."""
        places = [_Place(input, _Chain("prompt"))]
        while True:
            place = places[-1]
            children = () if isinstance(place.node, _UNKNOWN) else children_of(place.node)
            if len(place.children) < len(children):
                child = children[len(place.children)]
                places.append(_Place(child, _chain_below(place)))
                continue
            places.pop()
            node = self._done(place)
            if not places:
                return node
            places[-1].known &= place.known
            places[-1].children.append(node)

    def _done(self, place: _Place) -> Node:
        """Finish a node whose children are done, and add it to its chain."""
        node, chain = place.node, place.chain
        if isinstance(node, _UNKNOWN):
            place.known = chain.known = False
            return node
        if any(new is not old for new, old in zip(place.children, node.children, strict=True)):
            node = with_children(node, tuple(place.children))
        if isinstance(node, Bag):
            return self._bag(node, place)
        if not node.children:
            chain.add(node.head)
        return node

    def _bag(self, bag: Bag, place: _Place) -> Node:
        chain = place.chain
        if not place.known or not chain.known:
            chain.known = False
            return bag
        if not bag.independent and len(bag.children) > 1:
            items = tuple(map(str, bag.children))
            order = self._decide(chain.head(bag), items)
            if order is None:
                place.known = chain.known = False
            elif order != items:
                bag = Bag(_arranged(bag.children, items, order), bag.separator)
        chain.add(str(bag))
        return bag


_UNKNOWN = (Generate, Chat, Retrieve)


def _chain_below(place: _Place) -> _Chain:
    """The chain that a child belongs to."""
    if isinstance(place.node, Bag):
        return _Chain("span" if place.node.independent else "item")
    return place.chain


def _arranged(children: tuple[Node, ...], items: Row, order: Row) -> tuple[Node, ...]:
    """The children, whose texts are `items`, arranged in the order of `order`."""
    left: dict[str, list[Node]] = defaultdict(list)
    for child, item in zip(reversed(children), reversed(items), strict=True):
        left[item].append(child)
    return tuple(left[item].pop() for item in order)
