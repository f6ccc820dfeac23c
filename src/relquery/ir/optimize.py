"""The optimizer: applies rules to a tree until none applies any more (paper 002, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from relquery.errors import ConfigError, QueryError
from relquery.ir.nodes import Node, Retrieve, Text
from relquery.ir.paths import (
    check_node,
    children_of,
    distinct,
    path,
    verify,
    with_children,
)
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

Rule = Callable[[Node], Node | None]


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """One replacement: `rule` turned `before`, which was at `where`, into `after`.

    where: a path in the tree at that time, such as `generate/seq[1]/plus`.
    """

    rule: str
    before: Node
    after: Node
    where: str


def rewrite(
    node: Node,
    rules: Sequence[Rule],
    trace: list[RewriteStep] | None = None,
    *,
    verified: bool = False,
) -> Node:
    """The tree in which no rule applies anywhere. At each node, the first rule that applies wins.

    A node is tried before its descendants, so a whole nest is flattened at once, and again after
    they have changed. A node that occurs in several places is rewritten once. Rules are not tried
    on Text, as there is nothing in it to rewrite.

    trace: gets a Step for each replacement, in order. verified: check each replacement.
    Raises QueryError if the rules do not terminate, or if a replacement fails its check.
    """
    return _Rewriting(node, rules, trace, verified).final(node)


class _Rewriting:
    def __init__(
        self, node: Node, rules: Sequence[Rule], trace: list[RewriteStep] | None, verified: bool
    ) -> None:
        self._rules = rules
        self._trace = trace
        self._verified = verified
        self._final: dict[int, Node] = {}  # id of a node -> what it becomes
        self._alive: list[Node] = []  # an id is unique only while its node is alive
        self._above: list[tuple[Node, int]] = []  # from the root to the current node
        self._steps = 0
        self._limit = 1000 + 50 * sum(1 for _ in distinct(node))
        self._last: list[str] = []  # names of the last rules, when the limit is near

    def final(self, node: Node) -> Node:
        """What a node becomes."""
        if type(node) is Text:
            return node
        former = [node]  # with what replaces it
        while id(former[-1]) not in self._final:
            current = former[-1]
            after = self._apply(current)
            if after is None:
                children = children_of(current)
                final = list(children)
                for index, child in enumerate(children):
                    if type(child) is not Text:
                        self._above.append((current, index))
                        final[index] = self.final(child)
                        self._above.pop()
                if all(new is old for new, old in zip(final, children, strict=True)):
                    break
                after = with_children(current, tuple(final))
            former.append(after)
        latest = self._final.get(id(former[-1]), former[-1])
        for each in former:
            self._final[id(each)] = latest
        self._alive += former
        return latest

    def _apply(self, node: Node) -> Node | None:
        """What the first rule that applies makes of a node; None if none does."""
        if type(node) is Text:
            return None
        for rule in self._rules:
            after = rule(node)
            if after is not None:
                self._record(_name(rule), node, after)
                return after
        return None

    def _record(self, rule: str, before: Node, after: Node) -> None:
        where = path(self._above, before)
        self._steps += 1
        if self._trace is not None:
            self._trace.append(RewriteStep(rule, before, after, where))
        if self._verified:
            try:
                verify(after)
            except QueryError as error:
                raise QueryError(
                    f"Rule {rule} broke the tree at {where}. {error} Fix the rule."
                ) from error
        if self._steps > self._limit - 100:
            self._last.append(rule)
        if self._steps > self._limit:
            raise QueryError(
                f"Rewriting does not terminate: after {self._steps} replacements, rules still "
                f"apply at {where}. The last were {', '.join(sorted(set(self._last)))}: "
                "they undo each other, or one triggers itself. Remove one of them."
            )


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
    trace: list[RewriteStep] | None = None,
) -> Node:
    """The tree in core operators, simplified, and changed for one goal.

    for_: "cache" keeps what the model reads and in which order, and marks which parts can be
        reused (section 5.1). "attention" judges many candidates in a tree, `arity` at a time
        (section 6). This asks more questions, each with less to read, and their answers differ.
    retrieve: looks up passages for `Retrieve`. It is called with a corpus, a text and a limit, and
        returns at most `limit` texts, best first. A Retrieve whose query contains an answer stays
        in the tree until that is known.
    trace: gets each replacement as a Step, in order.

    Raises QueryError if the tree contains a Retrieve and `retrieve` is None; ConfigError for an
    unknown goal.
    """
    if not isinstance(for_, str) or for_ not in RULES:
        goals = " or ".join(repr(goal) for goal in get_args(Goal))
        raise ConfigError(f"for_ is {for_!r}; it must be {goals}.")
    check_node(node)
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


def _check_no_retrieve(node: Node) -> None:
    for below in distinct(node):
        if isinstance(below, Retrieve):
            raise QueryError(
                f"The query retrieves from corpus {below.corpus!r}, but no retrieve function was "
                "given. Pass retrieve=f, where f(corpus, text, limit) returns a list of texts."
            )
