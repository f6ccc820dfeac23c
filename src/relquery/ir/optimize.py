"""The high-level optimizer: rewrites a tree for the cache or for attention (paper 002)."""

from __future__ import annotations

from typing import Literal, get_args

from relquery.errors import ConfigError, QueryError
from relquery.ir.nodes import Node, Retrieve
from relquery.ir.paths import awaits_answer, check_node, distinct
from relquery.ir.rewrite import Rule, Step, rewrite
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
from relquery.ir.verify import check_size

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
