"""Python functions that statements call.

DuckDB shares them between all connections to a database. So each has a name of its own, and a
temporary macro, which belongs to one connection of DuckDB, gives it the name that users write.

AI_EMBED(text)  =>  _rq_ai_embed_4f1c(text)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Protocol
from uuid import uuid4

import duckdb

from relquery.sql import names as ours

_MOST = 8
"""Arguments of a function that takes any number."""
_CREATED = re.compile(
    r"\bCREATE\b[^;('\"]*\b(?:MACRO|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:\w+\s*\.\s*)*\"?(\w+)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Functions:
    """The functions of one of our connections. The connection of DuckDB may serve others of ours.

    macros: what gives the functions their names, by these.
    """

    owner: str = field(default_factory=lambda: uuid4().hex)
    macros: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def install(
        self, connection: Any, name: str, function: Callable[..., Any], kind: str, rows: str
    ) -> None:
        """Add a function of Arrow columns, in place of an older one.

        kind: the type of its values. rows: what FROM selects of a value, written `value`, e.g.
        "unnest(value) AS passage"; "" if the function cannot stand there.
        """
        own = self._own(name)
        with suppress(duckdb.Error):
            connection.remove_function(own)
        connection.create_function(own, function, None, kind, type="arrow")
        self.macros[name] = tuple(_macros(name, own, rows, _counts(function)))
        self._define(connection, name)
        connection.execute(_named(ours.OWNER, f"() AS '{self.owner}'"))

    def refresh(self, connection: Any, sql: str) -> None:
        """Make a statement call these functions, not those of another connection of ours.

        A macro that the statement creates takes the place of a function of its name.
        """
        for name in {found.lower() for found in _CREATED.findall(sql)} & set(self.macros):
            self._drop(connection, name)
            del self.macros[name]
        with suppress(duckdb.Error):  # the transaction is aborted: the statement itself says so
            if self._owner(connection) != self.owner:
                for name in self.macros:
                    self._define(connection, name)
                connection.execute(_named(ours.OWNER, f"() AS '{self.owner}'"))

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

    def _define(self, connection: Any, name: str) -> None:
        for macro in self.macros[name]:
            connection.execute(macro)

    def _drop(self, connection: Any, name: str) -> None:
        with suppress(duckdb.Error):
            connection.execute(f"DROP MACRO IF EXISTS temp.{name}")
            connection.execute(f"DROP MACRO TABLE IF EXISTS temp.{name}")


def _counts(function: Callable[..., Any]) -> Sequence[int]:
    """With how many arguments a function can be called."""
    parameters = signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return range(1, _MOST + 1)
    return [len(parameters)]


def _macros(name: str, own: str, rows: str, counts: Sequence[int]) -> Iterator[str]:
    """What makes the macros of a function. counts: of its arguments."""
    listings = [", ".join(f"a{at}" for at in range(count)) for count in counts]
    yield _named(name, ", ".join(f"({these}) AS {own}({these})" for these in listings))
    if rows:
        forms = (
            f"({these}) AS TABLE (SELECT {rows.replace('value', f'{own}({these})')})"
            for these in listings
        )
        yield _named(name, ", ".join(forms))


def _named(name: str, forms: str) -> str:
    return f"CREATE OR REPLACE TEMP MACRO {name}{forms}"


class Preparation(Protocol):
    """Reads what Python functions need, before a statement that calls them."""

    def is_needed(self, sql: str) -> bool:
        """Whether a statement needs anything, itself or in views and macros."""

    def prepare(self, sql: str) -> None:
        """Read what a statement needs."""
