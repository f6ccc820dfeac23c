"""Which functions a database has, as DuckDB lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from relquery.sql import names as ours

_LOADED = "SELECT extension_name FROM duckdb_extensions() WHERE loaded"
_LISTED = (
    "SELECT DISTINCT lower(function_name), function_type, "
    # DuckDB lists error() as volatile only so that it is not computed before its row.
    "stability = 'VOLATILE' AND function_name <> 'error', internal, "
    f"{ours.USERS_MACRO} AND function_name NOT LIKE '{ours.PREFIX}%', "
    "CASE WHEN macro_definition IS NOT NULL THEN list_transform(parameters, lambda p: lower(p)) "
    "END, macro_definition FROM duckdb_functions() WHERE stability = 'VOLATILE' "
    "OR function_type IN ('aggregate', 'macro', 'table_macro') ORDER BY ALL"
)
# What statements say that may add functions to the list, or take some from it. Extensions are
# compared by their names; our own macros are not in the list.
_CHANGES = re.compile(
    rf"\b(?:(?:macro|function)\b(?!\s+(?:temp\.)?{ours.PREFIX})"
    r"|(?:schema|database|attach|detach|import|rollback|abort|execute|call\s+\w+|pragma)\b)",
    re.IGNORECASE,
)


class Function(NamedTuple):
    """An aggregate, a macro or a volatile function. A name may have several.

    name: in lower case. kind: as DuckDB says it, e.g. "aggregate" or "table_macro". is_users:
    whether it is a macro of the user. parameters: of a macro, in lower case. body: its text.
    """

    name: str
    kind: str
    is_volatile: bool
    is_internal: bool
    is_users: bool
    parameters: tuple[str, ...]
    body: str | None


Functions = tuple[Function, ...]

# Of new databases in memory, by the loaded extensions: the same for all in a process.
_OF_NEW: dict[frozenset[str], Functions] = {}


@dataclass(slots=True)
class Catalogue:
    """The list of one database. DuckDB takes as long to make it as a short statement in all.

    is_private: whether nobody else can change the database, so that the list holds until a
    statement of ours may have changed it.
    """

    is_private: bool = False
    _is_new: bool = True
    _functions: Functions | None = None
    _loaded: frozenset[str] | None = None

    def functions(self, connection: Any) -> Functions:
        """The aggregates, macros and volatile functions. Raises duckdb.Error."""
        if not self.is_private:
            if self._functions is None:
                self._functions = tuple(_listed(connection))
            return self._functions
        loaded = _loaded(connection)
        if self._functions is None or loaded is None or loaded != self._loaded:
            key = loaded if self._is_new else None
            known = None if key is None else _OF_NEW.get(key)
            self._functions = tuple(_listed(connection)) if known is None else known
            self._loaded = loaded
            if key is not None:
                _OF_NEW[key] = self._functions
        return self._functions

    def begin(self) -> None:
        """Begin a turn. Forgets the list unless the database is private."""
        if not self.is_private:
            self._functions = None

    def note(self, statement: str) -> None:
        """Note that a statement is about to run, which may change the list."""
        if _CHANGES.search(statement):
            self._functions, self._is_new = None, False


def _loaded(connection: Any) -> frozenset[str] | None:
    """The extensions that are loaded; None where DuckDB may not read files, and so cannot tell."""
    try:
        return frozenset(name for (name,) in connection.execute(_LOADED).fetchall())
    except duckdb.Error:
        return None


def _listed(connection: Any) -> Iterator[Function]:
    for name, kind, is_volatile, internal, is_users, parameters, body in connection.execute(
        _LISTED
    ).fetchall():
        found = tuple(parameters or ())
        yield Function(name, kind, bool(is_volatile), internal, bool(is_users), found, body)
