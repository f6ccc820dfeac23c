"""Orders of bags by which each prompt shares as much as possible with other prompts.

Only the order inside a bag changes; what attends to what stays the same. A bag that contains an
answer, or passages not retrieved yet, keeps its order. So does every bag after it, because its
prefix is not known yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from relquery.ir.nodes import Bag, Chat, Generate, Node, Retrieve
from relquery.ir.optimize import RewriteStep, rewrite
from relquery.ir.paths import children_of, distinct, with_children
from relquery.spans.orders import Orders, Row

# (text before a bag, its items) -> the items in order, or None while undecided.
_Decide = Callable[[bytes, Row], Row | None]


def order_bags(
    roots: Sequence[Node],
    orders: Orders,
    *,
    keep: bool = True,
    traces: Sequence[list[RewriteStep]] | None = None,
) -> list[Node]:
    """Optimised queries with their bags in order.

    orders: orders of earlier prompts. keep: whether these prompts will be sent, so that later ones
        can start like them. traces: one list per query; a Step is added per changed prompt.
    """
    if not any(map(_has_bag, roots)):
        return list(roots)
    decisions = _Decisions(orders)
    while True:
        steps: list[list[RewriteStep]] = [[] for _ in roots]
        ordered = [
            rewrite(root, [_rule(decisions.decide)], trace)
            for root, trace in zip(roots, steps, strict=True)
        ]
        if not decisions.decide_open():
            break
    if keep:
        decisions.keep()
    for trace, new in zip(traces or (), steps, strict=False):
        trace.extend(new)
    return ordered


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
    texts: list[str] = []

    def note(head: bytes, row: Row) -> Row:
        name = hashlib.blake2b(head, digest_size=8)
        for item in row:
            name.update(f"{len(item)} {item}".encode())
            texts.append(f"{name.hexdigest()} {item}")
        return row

    if _has_bag(root):
        rewrite(root, [_rule(note)])
    return list(dict.fromkeys(texts))


def _has_bag(root: Node) -> bool:
    return any(_is_free(node) and len(node.children) > 1 for node in distinct(root))


def _is_free(node: Node) -> bool:
    return isinstance(node, Bag) and not node.independent


def _rule(decide: _Decide) -> Callable[[Node], Node | None]:
    def order_bags(node: Node) -> Node | None:
        """generate(bag(x, y)) => generate(bag(y, x))"""
        if not isinstance(node, Generate):
            return None
        input, _ = _ordered(node.input, _Chain("prompt"), decide)
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


def _ordered(node: Node, chain: _Chain, decide: _Decide) -> tuple[Node, bool]:
    """A node with its bags in order, inner ones first; and whether all of its text is known.

    It is itself if nothing changes, and is added to its chain.
    """
    if isinstance(node, _UNKNOWN):
        chain.known = False
        return node, False
    if not node.children:
        chain.add(node.head)
        return node, True
    is_known, children = True, list[Node]()
    for child in children_of(node):
        below = chain
        if isinstance(node, Bag):
            below = _Chain("span" if node.independent else "item")
        new, is_child_known = _ordered(child, below, decide)
        children.append(new)
        is_known &= is_child_known
    if any(new is not old for new, old in zip(children, node.children, strict=True)):
        node = with_children(node, tuple(children))
    if isinstance(node, Bag):
        return _ordered_bag(node, is_known, chain, decide)
    return node, is_known


def _ordered_bag(bag: Bag, is_known: bool, chain: _Chain, decide: _Decide) -> tuple[Bag, bool]:
    """A bag, whose children are in order."""
    if not is_known or not chain.known:
        chain.known = False
        return bag, is_known
    if not bag.independent and len(bag.children) > 1:
        items = tuple(map(str, bag.children))
        order = decide(chain.head(bag), items)
        if order is None:
            is_known = chain.known = False
        elif order != items:
            bag = Bag(_arranged(bag.children, items, order), bag.separator)
    chain.add(str(bag))
    return bag, is_known


_UNKNOWN = (Generate, Chat, Retrieve)


def _arranged(children: tuple[Node, ...], items: Row, order: Row) -> tuple[Node, ...]:
    """The children, whose texts are `items`, arranged in the order of `order`."""
    left: dict[str, list[Node]] = defaultdict(list)
    for child, item in zip(reversed(children), reversed(items), strict=True):
        left[item].append(child)
    return tuple(left[item].pop() for item in order)
