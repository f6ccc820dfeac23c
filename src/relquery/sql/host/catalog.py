"""The definitions of a database: functions that DuckDB lists, those in Python that statements call,
and texts with LLM calls, which the connection keeps because DuckDB cannot.

DuckDB shares Python functions between all connections to a database. So each has a name of its
own, and a temporary macro, which belongs to one connection of DuckDB, gives it the name that users
write.

AI_EMBED(text)  =>  _rq_ai_embed_4f1c(text)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import duckdb

from relquery.sql import names as ours

_MOST = 8
"""Arguments of a function that takes any number."""
_CREATED = re.compile(
    r"\bCREATE\b[^;('\"]*\b(?:MACRO|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:\w+\s*\.\s*)*\"?(\w+)",
    re.IGNORECASE,
)
_LOADED = "SELECT extension_name FROM duckdb_extensions() WHERE loaded"
_VIEWS = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"
_LISTED = (
    "SELECT DISTINCT lower(function_name), function_type, "
    # DuckDB lists error() as volatile only so that it is not computed before its row.
    "stability = 'VOLATILE' AND function_name <> 'error', internal, "
    f"coalesce({ours.USERS_MACRO} AND function_name NOT LIKE '{ours.PREFIX}%', false), "
    "CASE WHEN macro_definition IS NOT NULL THEN list_transform(parameters, lambda p: lower(p)) "
    "END, macro_definition FROM duckdb_functions() WHERE stability = 'VOLATILE' "
    "OR function_type IN ('aggregate', 'macro', 'table_macro') ORDER BY ALL"
)
# What statements say that may add functions to the list, or take some from it. Extensions are
# compared by their names; our own macros are not in the list.
_CHANGES = re.compile(
    rf"\b(?:(?:macro|function)\b(?!\s+(?:temp\.)?{ours.PREFIX})"
    r"|(?:view|schema|database|attach|detach|import|rollback|abort|execute|call\s+\w+|pragma)\b)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class PythonFunctions:
    """The functions of one of our connections. The connection of DuckDB may serve others of ours.

    macros: what gives the functions their names, by these.
    """

    owner: str = field(default_factory=lambda: uuid4().hex)
    macros: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def install(
        self, connection: Any, name: str, function: Callable[..., Any], kind: str, rows: str
    ) -> None:
        """Add a function of Arrow columns, in place of an older one.

        function: its signature says with how many arguments it can be called. kind: the type of its
        values. rows: what FROM selects of a value, written `value`, e.g. "unnest(value) AS
        passage"; "" if the function cannot stand there.
        """
        own = self._own(name)
        with suppress(duckdb.Error):
            connection.remove_function(own)

        def called(*given: Any) -> Any:  # DuckDB takes this for any number of arguments
            return function(*given)

        connection.create_function(own, called, None, kind, type="arrow")
        self.macros[name] = tuple(_macros(name, own, rows, _counts(function)))
        self._define(connection, [name])

    def refresh(self, connection: Any, sql: str) -> None:
        """Make a statement call these functions, not those of another connection of ours.

        A macro that the statement creates takes the place of a function of its name.
        """
        for name in {name.lower() for name in _CREATED.findall(sql)} & set(self.macros):
            self._drop(connection, name)
            del self.macros[name]
        with suppress(duckdb.Error):  # the transaction is aborted: the statement itself says so
            if self._owner(connection) != self.owner:
                self._define(connection, self.macros)

    def remove(self, connection: Any) -> None:
        """Remove the functions. Does nothing if the connection is closed."""
        with suppress(duckdb.Error):
            is_last = self._owner(connection) == self.owner
            for name in self.macros:
                if is_last:
                    self._drop(connection, name)
                connection.remove_function(self._own(name))
            if is_last:
                connection.execute(f"DROP MACRO IF EXISTS temp.{ours.OWNER}")
        self.macros.clear()

    def _own(self, name: str) -> str:
        return f"{ours.PREFIX}{name}_{self.owner}"

    def _owner(self, connection: Any) -> str | None:
        """Whose functions the macros call."""
        try:  # as a relation: an error of `execute` would end the user's transaction
            ((owner,),) = connection.sql(f"SELECT {ours.OWNER}()").fetchall()
        except duckdb.CatalogException:
            return None
        return str(owner)

    def _define(self, connection: Any, names: Iterable[str]) -> None:
        for macro in (macro for name in names for macro in self.macros[name]):
            connection.execute(macro)
        connection.execute(_named(ours.OWNER, f"() AS '{self.owner}'"))

    def _drop(self, connection: Any, name: str) -> None:
        with suppress(duckdb.Error):
            connection.execute(f"DROP MACRO IF EXISTS temp.{name}")
            connection.execute(f"DROP MACRO TABLE IF EXISTS temp.{name}")


def _counts(function: Callable[..., Any]) -> Sequence[int]:
    """With how many arguments a function can be called."""
    parameters = signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return range(1, _MOST + 1)
    needed = sum(parameter.default is parameter.empty for parameter in parameters)
    return range(needed, len(parameters) + 1)


def _macros(name: str, own: str, rows: str, counts: Sequence[int]) -> Iterator[str]:
    """What makes the macros of a function. counts: of its arguments."""
    listings = [", ".join(f"a{index}" for index in range(count)) for count in counts]
    yield _named(name, ", ".join(f"({these}) AS {own}({these})" for these in listings))
    if rows:
        forms = (
            f"({these}) AS TABLE (SELECT {rows.replace('value', f'{own}({these})')})"
            for these in listings
        )
        yield _named(name, ", ".join(forms))


def _named(name: str, forms: str) -> str:
    return f"CREATE OR REPLACE TEMP MACRO {name}{forms}"


class ListedFunction(NamedTuple):
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


Listing = Mapping[str, Sequence[ListedFunction]]
"""Functions by their names."""
# Of new databases in memory, by the loaded extensions: the same for all in a process.
_OF_NEW: dict[frozenset[str] | None, Listing] = {}


@dataclass(slots=True)
class ListedFunctions:
    """The list of one database. DuckDB takes as long to make it as a short statement in all.

    is_private: whether nobody else can change the database, so that the list holds until a
    statement of ours may have changed it, or has loaded an extension.
    """

    is_private: bool = False
    _is_new: bool = True
    _is_checked: bool = False
    _functions: Listing | None = None
    _views: list[tuple[str, str]] | None = None
    _loaded: frozenset[str] | None = None

    def functions(self, connection: Any) -> Listing:
        """The aggregates, macros and volatile functions. Raises duckdb.Error."""
        if self._functions is not None and self._is_checked:
            return self._functions
        loaded = _loaded(connection) if self.is_private else None
        # Where it cannot be told what is loaded, a database of ours loads nothing more either.
        is_same = loaded == self._loaded if loaded is not None else self.is_private
        if self._functions is None or not is_same:
            key = loaded if self._is_new else None
            self._functions = _OF_NEW.get(key) or _by_name(_listed(connection))
            self._loaded = loaded
            if key is not None:
                _OF_NEW[key] = self._functions
        self._is_checked = True
        return self._functions

    def bodies(self, connection: Any) -> list[tuple[str, str]]:
        """(name, text) of the user's views and macros. Raises duckdb.Error."""
        if self._views is None:
            self._views = connection.execute(_VIEWS).fetchall()
        functions = self._functions  # an extension has no macros of the user
        if functions is None or not self.is_private:
            functions = self.functions(connection)
        listed = (function for same in functions.values() for function in same)
        return self._views + [
            (function.name, function.body)
            for function in listed
            if function.is_users and function.body
        ]

    def begin(self) -> None:
        """Begin a turn. Forgets what others may have changed."""
        if not self.is_private:
            self._is_checked, self._views = False, None

    def note(self, statement: str) -> None:
        """Note that a statement is about to run, which may change the list."""
        changes = {match.group().lower() for match in _CHANGES.finditer(statement)}
        if changes:
            self._views = None
        if changes - {"view"}:
            self._functions, self._is_new = None, False
        if self.is_private:  # it may load an extension
            self._is_checked = False


def _by_name(functions: Iterable[ListedFunction]) -> Listing:
    listing: dict[str, list[ListedFunction]] = {}
    for function in functions:
        listing.setdefault(function.name, []).append(function)
    return listing


def _loaded(connection: Any) -> frozenset[str] | None:
    """The extensions that are loaded; None where DuckDB may not read files, and so cannot tell."""
    try:
        return frozenset(name for (name,) in connection.execute(_LOADED).fetchall())
    except duckdb.Error:
        return None


def _listed(connection: Any) -> Iterator[ListedFunction]:
    for function in map(ListedFunction._make, connection.execute(_LISTED).fetchall()):
        yield function._replace(parameters=tuple(function.parameters or ()))


# What DuckDB cannot keep

Kind = Literal["VIEW", "MACRO"]
Key = tuple[Kind, str]
"""The kind of a definition and its lower-case name."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A view or macro with LLM calls.

    names: a view's columns, if it names them; a macro's parameters. body: the SQL of the query or
    the expression. columns: those that a view had when it was created.
    """

    kind: Kind
    name: str
    names: tuple[str, ...]
    body: str
    columns: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Its key among all definitions."""
        return self.kind, self.name.lower()


@dataclass(slots=True)
class KeptDefinitions:
    """Views and macros with LLM calls, and what a connection knows of its functions in Python."""

    definitions: dict[Key, Definition] = field(default_factory=dict)
    searches: Callable[[str], bool] = lambda _: False
    """Whether a statement calls functions that read tables."""
    compared_by: Callable[[], str] = str
    """What compares texts in the functions of retrieval, for people."""
    models: frozenset[str] = frozenset()
    """Names of models that the connection was given."""
    compared: set[str] = field(default_factory=set)
    """Those of these functions that the present query has called."""

    def copy(self) -> KeptDefinitions:
        """A copy to try changes on."""
        return replace(self, definitions=dict(self.definitions))

    def define(self, definition: Definition) -> None:
        """Keep a view or macro; it replaces one of its name."""
        self.definitions[definition.key] = definition

    def forget(self, key: Key) -> None:
        """Keep a definition no longer."""
        self.definitions.pop(key, None)
