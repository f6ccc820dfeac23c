"""The optimizer: applies rules to a tree until none applies any more (paper 002, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from relquery.errors import ConfigError, QueryError
from relquery.ir.nodes import Node, Retrieve, Text
from relquery.ir.paths import awaits_answer, check_node, children_of, distinct, path, with_children
from relquery.ir.rules import (
    Lookup,
    desugar_chat,
    desugar_fragment,
    desugar_retrieve,
    distribute_plus,
    drop_empty,
    drop_prepare,
    flatten_bag,
    flatten_plus,
    flatten_seq,
    reduce_tree,
    unwrap_single,
)
from relquery.ir.verify import check_size, verify

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


Goal = Literal["cache", "attention"]

DESUGAR: tuple[Rule, ...] = (desugar_chat, desugar_fragment)  # and desugar_retrieve(...)
SIMPLIFY: tuple[Rule, ...] = (
    drop_prepare,
    flatten_plus,
    flatten_seq,
    flatten_bag,
    drop_empty,
    unwrap_single,
)
# The rules for each goal. For attention, reduce_tree(arity) then runs on their result.
RULES: dict[Goal, tuple[Rule, ...]] = {
    "cache": (*DESUGAR, *SIMPLIFY, distribute_plus),
    "attention": (*DESUGAR, *SIMPLIFY),
}


def optimize(
    node: Node,
    for_: Goal = "cache",
    *,
    arity: int = 2,
    retrieve: Lookup | None = None,
    trace: list[Step] | None = None,
) -> Node:
    """The tree in core operators, simplified, and changed for one goal.

    for_: "cache" keeps what the model reads and in which order, and marks which parts can be
        reused (section 5.1). "attention" judges many candidates in a tree, `arity` at a time
        (section 6). This asks more questions, each with less to read, and their answers differ.
    retrieve: looks up passages for `Retrieve`. It is called with a corpus, a text and a limit, and
        returns at most `limit` texts, best first. A Retrieve whose query contains an answer stays
        in the tree (see `awaits_retrieval`).
    trace: gets each replacement as a Step, in order.

    Raises QueryError if the tree contains a Retrieve and `retrieve` is None, or has too many nodes
    to run; ConfigError for an unknown goal.
    """
    if not isinstance(for_, str) or for_ not in RULES:
        goals = " or ".join(repr(goal) for goal in get_args(Goal))
        raise ConfigError(f"for_ is {for_!r}; it must be {goals}.")
    check_node(node)
    check_size(node)
    reduce = reduce_tree(arity)  # checks the arity, whatever the goal
    rules = RULES[for_]
    if retrieve is not None:
        if not callable(retrieve):
            raise ConfigError(
                f"retrieve is {retrieve!r}; it must be a function of (corpus, query, limit)."
            )
        rules = (desugar_retrieve(retrieve), *rules)
    else:
        _check_no_retrieve(node)
    node = rewrite(node, rules, trace)
    return node if for_ == "cache" else rewrite(node, (*rules, reduce), trace)


def awaits_retrieval(node: Node) -> bool:
    """Whether a Retrieve below can only run during execution, as its query contains an answer."""
    return any(
        isinstance(below, Retrieve) and awaits_answer(below.query) for below in distinct(node)
    )


def _check_no_retrieve(node: Node) -> None:
    for below in distinct(node):
        if isinstance(below, Retrieve):
            raise QueryError(
                f"The query retrieves from corpus {below.corpus!r}, but no retrieve function was "
                "given. Pass retrieve=f, where f(corpus, text, limit) returns a list of texts."
            )
