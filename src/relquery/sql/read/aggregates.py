"""Which functions are aggregates and which are volatile, from DuckDB's own lists.

The parser knows only some of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.host.catalogue import Function
from relquery.sql.host.database import Database
from relquery.sql.read.source import call_number

_WORD = re.compile(r"\w+")
_SYNTAX = (exp.And, exp.Or, exp.Case, exp.Exists, exp.Cast, exp.TryCast)


@dataclass(frozen=True, slots=True)
class Aggregates:
    """names: lower-case names of all aggregate functions. volatile: of functions like random().

    macros: names of the user's macros. querying: of macros that contain a subquery, or call one
    that does.
    """

    names: frozenset[str]
    volatile: frozenset[str] = frozenset()
    macros: frozenset[str] = frozenset()
    querying: frozenset[str] = frozenset()

    @classmethod
    def of(cls, database: Database, statement: exp.Expr) -> Aggregates:
        """Read the lists from the database, unless the statement calls no function."""
        if not any(_may_be_listed(node) for node in statement.find_all(exp.Func)):
            return cls(frozenset())
        listed = database.listed_functions()
        macros = frozenset(one.name for one in listed if one.is_users and one.kind == "macro")
        return cls(
            frozenset(one.name for one in listed if one.kind == "aggregate"),
            frozenset(one.name for one in listed if one.is_volatile and one.kind != "aggregate"),
            macros,
            _querying(listed) if macros else frozenset(),
        )

    def is_volatile(self, node: exp.Expr) -> bool:
        """Whether an expression may have a different value each time it is computed."""
        return any(_is_named(found, self.volatile) for found in node.find_all(exp.Func))

    def has_query(self, node: exp.Expr) -> bool:
        """Whether an expression, or a macro that it calls, contains a subquery."""
        calls = node.find_all(exp.Func)
        return node.find(exp.Query) is not None or any(
            _is_named(found, self.querying) for found in calls
        )

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node aggregates rows into one value and is not a window function."""
        return self._folds(node) and not _in_window(node)

    def around(self, node: exp.Expr, top: exp.Expr) -> bool:
        """Whether a node is in an aggregate below `top`, or in its FILTER or WITHIN GROUP."""
        parent = node.parent
        while parent is not None and parent is not top:
            whole = parent.this if isinstance(parent, exp.Filter | exp.WithinGroup) else parent
            if self.is_aggregate(whole):
                return True
            parent = parent.parent
        return False

    def inside(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """The aggregates in an expression, except those in subqueries."""
        for found in node.walk(prune=lambda part: isinstance(part, exp.Query)):
            if self.is_aggregate(found):
                yield found

    def in_select(self, select: exp.Select) -> bool:
        """Whether a SELECT returns groups instead of rows."""
        if select.args.get("group") or select.args.get("having"):
            return True
        clauses = [*select.expressions, select.args.get("qualify"), select.args.get("order")]
        return any(next(self.inside(node), None) is not None for node in clauses if node)

    def _folds(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.AggFunc):
            return True
        return _is_named(node, self.names)


def _querying(listed: Sequence[Function]) -> frozenset[str]:
    macros = [one for one in listed if one.kind == "macro" and not one.is_internal and one.body]
    bodies = [(one.name, set(_WORD.findall(str(one.body).lower()))) for one in macros]
    found = {"select"}
    while more := {name for name, words in bodies if found & words} - found:
        found |= more
    return frozenset(found - {"select"})


def _may_be_listed(node: exp.Expr) -> bool:
    """Whether a node calls a function by name; the parser has types of functions for syntax too."""
    of_case = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
    return not of_case and not isinstance(node, _SYNTAX) and call_number(node) is None


def _is_named(node: exp.Expr, names: frozenset[str]) -> bool:
    """Whether a node calls one of some functions."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in names
    return isinstance(node, exp.Func) and any(
        name.lower() in names for name in type(node).sql_names()
    )


def _in_window(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent = parent.parent
    return isinstance(parent, exp.Window)
