"""Applies rules to a tree until none applies any more (paper 002, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relquery.errors import QueryError
from relquery.ir.nodes import Node, Text
from relquery.ir.paths import children_of, distinct, path, with_children
from relquery.ir.verify import verify

Rule = Callable[[Node], Node | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One replacement: `rule` turned `before`, which was at `where`, into `after`.

    where: a path in the tree at that time, such as `generate/seq[1]/plus`.
    """

    rule: str
    before: Node
    after: Node
    where: str


def rewrite(
    node: Node, rules: Sequence[Rule], trace: list[Step] | None = None, *, verified: bool = False
) -> Node:
    """The tree in which no rule applies anywhere. At each node, the first rule that applies wins.

    A node is tried before its descendants, so a whole nest is flattened at once, and again after
    they have changed. A node that occurs in several places is rewritten once. Rules are not tried
    on Text, as there is nothing in it to rewrite.

    trace: gets a Step for each replacement, in order. verified: check each replacement.
    Raises QueryError if the rules do not terminate, or if a replacement fails its check.
    """
    return _Rewriting(node, rules, trace, verified).run()


class _Place:
    """A node in progress: which children are done, and what the node was originally."""

    __slots__ = ("changed", "former", "next", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.next = 0  # the first child that is not final
        self.changed: dict[int, Node] = {}  # final children that differ from the node's own
        self.former: list[Node] = []  # the nodes that this one replaces


class _Rewriting:
    def __init__(
        self, node: Node, rules: Sequence[Rule], trace: list[Step] | None, verified: bool
    ) -> None:
        self._root = node
        self._rules = rules
        self._trace = trace
        self._verified = verified
        self._final: dict[int, Node] = {}  # id of a node -> what it becomes
        self._alive: list[Node] = []  # an id is unique only while its node is alive
        self._places: list[_Place] = []  # from the root to the current node
        self._steps = 0
        self._limit = 1000 + 50 * sum(1 for _ in distinct(node))
        self._last: list[str] = []  # names of the last rules, when the limit is near

    def run(self) -> Node:
        self._enter(self._root)
        while self._places:
            place = self._places[-1]
            child = self._next_child(place)
            if child is not None:
                self._enter(child)
            elif place.changed:
                self._rebuild(place)
            else:
                self._leave(place)
        return self._final.get(id(self._root), self._root)

    def _enter(self, node: Node) -> None:
        place = _Place(node)
        self._places.append(place)
        self._apply(place)

    def _next_child(self, place: _Place) -> Node | None:
        """The next child that is not final; copies the final ones before it."""
        children = children_of(place.node)
        for index in range(place.next, len(children)):
            child = children[index]
            if type(child) is Text:
                continue
            final = self._final.get(id(child))
            if final is None:
                place.next = index
                return child
            if final is not child:
                place.changed[index] = final
        place.next = len(children)
        return None

    def _rebuild(self, place: _Place) -> None:
        children = list(children_of(place.node))
        for index, child in place.changed.items():
            children[index] = child
        self._become(place, with_children(place.node, tuple(children)))
        self._apply(place)

    def _leave(self, place: _Place) -> None:
        for former in place.former:
            self._final[id(former)] = place.node
        self._final[id(place.node)] = place.node
        self._alive += place.former
        self._alive.append(place.node)
        self._places.pop()

    def _apply(self, place: _Place) -> None:
        """Apply rules to the node itself until none applies."""
        while type(place.node) is not Text:
            for rule in self._rules:
                after = rule(place.node)
                if after is not None:
                    self._record(_name(rule), place.node, after)
                    self._become(place, after)
                    break
            else:
                return
            # A rule may return a node that is already final, such as the only child of a join.
            final = self._final.get(id(place.node))
            if final is not None:
                self._become(place, final)
                place.next = len(children_of(final))
                return

    def _become(self, place: _Place, node: Node) -> None:
        place.former.append(place.node)
        place.node = node
        place.next = 0
        place.changed = {}

    def _record(self, rule: str, before: Node, after: Node) -> None:
        self._steps += 1
        if self._trace is not None:
            self._trace.append(Step(rule, before, after, self._where()))
        if self._verified:
            try:
                verify(after)
            except QueryError as error:
                raise QueryError(
                    f"Rule {rule} broke the tree at {self._where()}. {error} Fix the rule."
                ) from error
        if self._steps > self._limit - 100:
            self._last.append(rule)
        if self._steps > self._limit:
            raise QueryError(
                f"Rewriting does not terminate: after {self._steps} replacements, rules still "
                f"apply at {self._where()}. The last were {', '.join(sorted(set(self._last)))}: "
                "they undo each other, or one triggers itself. Remove one of them."
            )

    def _where(self) -> str:
        *above, place = self._places
        return path([(ancestor.node, ancestor.next) for ancestor in above], place.node)


def _name(rule: Rule) -> str:
    return str(getattr(rule, "__name__", rule))
