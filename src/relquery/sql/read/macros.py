"""Expands macros that hide what a plan has to see: aggregates, window functions, generated rows.

CREATE MACRO cnt(x) AS count(x)
cnt(LLM('...', a))  =>  count(LLM('...', a))

A user's macro is also expanded if an LLM call is one of its arguments. DuckDB expands the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot import Dialect, TokenType, exp
from sqlglot.errors import SqlglotError

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.binding import is_variable
from relquery.sql.read.scopes import has_call
from relquery.sql.read.source import DIALECT, named_like, readable
from relquery.sql.read.tokens import parse, tokenize

KNOWN_FUNCTIONS = Dialect.get_or_raise(DIALECT).parser_class.FUNCTIONS
# Replace a parameter without parentheses around them.
_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean)
_MOST = 1000  # expansions of one statement; macros cannot call themselves


@dataclass(frozen=True, slots=True)
class Macro:
    """parameters: lower-case names. internal: whether DuckDB defines it."""

    name: str
    parameters: tuple[str, ...]
    body: exp.Expr
    internal: bool


@dataclass(frozen=True, slots=True)
class Macros:
    """The scalar macros of a database, read when a query uses them.

    Macros that the parser cannot read are left to DuckDB.
    """

    database: Database
    aggregates: Aggregates
    _known: dict[str, list[Macro]] = field(default_factory=dict)

    def expand(self, tree: exp.Expr, sql: str) -> exp.Expr:
        """A statement, written as `sql`, without such macros.

        Raises UnsupportedQueryError for a macro that is called with a schema or with default
        values, or that has the name of a function.
        """
        self._check_names(sql)
        tree = tree.copy()
        self._read({_name(call) for call in tree.find_all(exp.Anonymous)})
        for _ in range(_MOST):
            found = next(filter(self._is_subtle, tree.find_all(exp.Anonymous, bfs=False)), None)
            if found is None:
                return tree
            found.replace(named_like(self._expanded(found), found))
        raise UnsupportedQueryError(f"This query calls more than {_MOST} macros. Write them out.")

    def _read(self, names: set[str]) -> None:
        """Read macros of these lower-case names, and those that they call."""
        names = {name for name in names if name not in self._known and not _is_ours(name)}
        if not names:
            return
        self._known.update({name: [] for name in names})
        called: set[str] = set()
        for one in self.database.listed_functions():
            is_read = one.kind == "macro" and (one.is_internal or one.is_users)
            if one.name not in names or not is_read or (body := _parsed(one.body)) is None:
                continue
            self._known[one.name].append(Macro(one.name, one.parameters, body, one.is_internal))
            called.update(_name(found) for found in body.find_all(exp.Anonymous))
        self._read(called)

    def _check_names(self, sql: str) -> None:
        """Refuse macros named like a function: the parser would take them for that function."""
        named = [name for name in self.aggregates.macros if name.upper() in KNOWN_FUNCTIONS]
        if not named:
            return
        tokens = tokenize(sql)
        for token, following in pairwise(tokens):
            if token.text.lower() in named and following.token_type == TokenType.L_PAREN:
                raise UnsupportedQueryError(
                    f"The macro {token.text} has the name of a function in another SQL dialect. "
                    "A query with LLM calls cannot use it. Rename the macro."
                )

    def _is_subtle(self, call: exp.Expr) -> bool:
        asks = has_call(call)
        return any(
            self._hides(macro, set()) or (asks and not macro.internal)
            for macro in self._known.get(_name(call), ())
        )

    def _hides(self, macro: Macro, seen: set[str]) -> bool:
        """Whether a macro, or one that it calls, computes over more than one row."""
        body = macro.body
        if body.find(exp.Window, exp.Explode, exp.UDTF) is not None:
            return True
        if next(self.aggregates.inside(body), None) is not None:
            return True
        called = {_name(found) for found in body.find_all(exp.Anonymous)} - seen
        return any(
            self._hides(inner, seen | called)
            for name in called
            for inner in self._known.get(name, ())
        )

    def _expanded(self, call: exp.Expr) -> exp.Expr:
        given = [one for one in call.expressions if not _is_named(one)]
        by_name = {
            one.this.name.lower(): one.expression for one in call.expressions if _is_named(one)
        }
        for macro in () if isinstance(call.parent, exp.Dot) else self._known[_name(call)]:
            values = dict(zip(macro.parameters, given, strict=False)) | by_name
            if len(given) <= len(macro.parameters) and set(values) == set(macro.parameters):
                return exp.paren(put_arguments(macro.body, values), copy=False)
        raise UnsupportedQueryError(
            f"The macro call {readable(call)[:80]} has a name before it or leaves out arguments, "
            "which a query with LLM calls does not support. Remove the name and give all "
            "arguments, or write out what the macro does."
        )


def _parsed(definition: str | None) -> exp.Expr | None:
    try:
        return None if definition is None else parse(definition)
    except SqlglotError:
        return None


def _is_ours(name: str) -> bool:
    return name.startswith(ours.PREFIX)


def _name(call: exp.Expr) -> str:
    return str(call.this).lower()


def _is_named(argument: exp.Expr) -> bool:
    return isinstance(argument, exp.PropertyEQ | exp.Kwarg)


def put_arguments(body: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    """A macro body with its parameters replaced by values, by lower-case name."""

    def put(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or is_variable(node):
            return node
        value = values.get((node.table or node.name).lower())
        if value is None:
            return node
        if not node.table:
            put = value.copy() if isinstance(value, _ATOMS) else exp.paren(value)
            return named_like(put, node)
        return exp.Dot(this=exp.paren(value), expression=node.this.copy())

    return body.transform(put)
