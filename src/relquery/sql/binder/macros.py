"""Expands macros that hide what a plan has to see: aggregates, window functions, generated rows.

CREATE MACRO cnt(x) AS count(x)
cnt(LLM('...', a))  =>  count(LLM('...', a))

A user's macro is also expanded if an LLM call is one of its arguments. DuckDB expands the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import asking_in, named_like, readable
from relquery.sql.binder.definitions import put_arguments
from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows
from relquery.sql.host.database import Database
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Function, Node, TableFunction, Window

_MOST = 1000  # expansions of one statement; macros cannot call themselves


@dataclass(frozen=True, slots=True)
class Macro:
    """parameters: lower-case names. internal: whether DuckDB defines it."""

    name: str
    parameters: tuple[str, ...]
    body: Expression
    internal: bool


@dataclass(frozen=True, slots=True)
class Macros:
    """The scalar macros of a database, read when a query uses them.

    Macros that the parser cannot read are left to DuckDB.
    """

    database: Database
    functions: FunctionCatalog
    _known: dict[str, list[Macro]] = field(default_factory=dict)

    def expand(self, tree: Node) -> None:
        """Expand such macros in a statement, in place.

        Raises UnsupportedQueryError for a macro that is called with a schema or with default
        values.
        """
        self._read({one.name.lower() for one in tree.find_all(Function)})
        for _ in range(_MOST):
            found = next((one for one in tree.find_all(Function) if self._is_subtle(one)), None)
            if found is None:
                return
            put = self._expanded(found)
            named_like(put, found)
            # An item without a name is called as it is written.
            is_item = found.place == "select_list" and not found.alias
            found.replace(put.named(readable(found) if is_item else found.alias))
        raise UnsupportedQueryError(f"This query calls more than {_MOST} macros. Write them out.")

    def _read(self, names: set[str]) -> None:
        """Read macros of these lower-case names, and those that they call."""
        names = {
            name for name in names if name not in self._known and not name.startswith(ours.PREFIX)
        }
        if not names:
            return
        self._known.update({name: [] for name in names})
        called: set[str] = set()
        for one in self.database.listed_functions():
            is_read = one.kind == "macro" and (one.is_internal or one.is_users)
            if one.name not in names or not is_read or one.body is None:
                continue
            try:
                body = parser().expression(one.body)
            except QueryError:
                continue
            self._known[one.name].append(Macro(one.name, one.parameters, body, one.is_internal))
            called.update(found.name.lower() for found in body.find_all(Function))
        self._read(called)

    def _is_subtle(self, call: Function) -> bool:
        if isinstance(call.parent, TableFunction) or isinstance(call, Window):
            return False  # over a window it has a value for each row
        macros = self._known.get(call.name.lower(), ())
        asks = bool(macros) and next(asking_in(call), None) is not None
        return any(self._hides(macro, set()) or (asks and not macro.internal) for macro in macros)

    def _hides(self, macro: Macro, seen: set[str]) -> bool:
        """Whether a macro, or one that it calls, computes over more than one row."""
        body = macro.body
        if has_window(body) or makes_rows(body) or self.functions.has_aggregate(body):
            return True
        called = {found.name.lower() for found in body.find_all(Function)} - seen
        return any(
            self._hides(inner, seen | called)
            for name in called
            for inner in self._known.get(name, ())
        )

    def _expanded(self, call: Function) -> Expression:
        given = [one.value for one in call.arguments if not one.name]
        by_name = {one.name.lower(): one.value for one in call.arguments if one.name}
        for macro in () if call.schema else self._known[call.name.lower()]:
            values = dict(zip(macro.parameters, given, strict=False)) | by_name
            if len(given) <= len(macro.parameters) and set(values) == set(macro.parameters):
                put = put_arguments(macro.body, values)
                assert isinstance(put, Expression)
                return put
        raise UnsupportedQueryError(
            f"The macro call {readable(call)[:80]} has a name before it or leaves out arguments, "
            "which a query with LLM calls does not support. Remove the name and give all "
            "arguments, or write out what the macro does."
        )
