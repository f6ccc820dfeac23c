"""The rules, in order, and how they are applied: the first that fits, again and again."""

from __future__ import annotations

from collections.abc import Callable

from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.host.database import Database
from relquery.sql.optimizer.correlated import answer_correlated
from relquery.sql.optimizer.drop_unread import drop_unread
from relquery.sql.optimizer.join_conditions import answer_join_conditions
from relquery.sql.optimizer.join_reductions import reduce_by_joins
from relquery.sql.optimizer.push_conditions import push_conditions
from relquery.sql.optimizer.push_limits import push_limits
from relquery.sql.optimizer.reads import Lookup, name_subqueries
from relquery.sql.parser.tree import Query

Rule = Callable[[Query, Lookup], bool]
"""Rewrites a statement at one place. Returns whether a place fits. It neither changes the rows of
the statement nor makes it ask more."""

RULES: tuple[Rule, ...] = (
    name_subqueries,
    push_conditions,
    reduce_by_joins,
    drop_unread,
    answer_join_conditions,
    answer_correlated,
    push_limits,
)
_MOST = 1000  # steps; each moves one part of the statement inwards, or removes it


def optimize(statement: Query, database: Database, functions: FunctionCatalog) -> Query:
    """A statement to which no rule applies. Raises UnsupportedQueryError for a form without one."""
    lookup = Lookup(database, functions)
    for _ in range(_MOST):
        if not any(rule(statement, lookup) for rule in RULES):
            return statement
    raise AssertionError("the rules do not end")
