"""The values of a query's parameters: `?` and `$1` from a list, `$name` from a dict.

A value never becomes SQL text. DuckDB takes it as a value, wherever the parameter stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.parser.statements import StatementText, half_a_character, read_head


@dataclass(frozen=True, slots=True)
class Parameters:
    """Values by lower-case name, or by number from "1".

    objects: for values that DuckDB cannot take, why. Only a call may have them as arguments.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)

    def of(self, text: StatementText) -> dict[str, Any]:
        """The values of a statement's parameters, by the names that it has for them."""
        return {name: self.values[text.number_of(name)] for name in text.parameters}

    def objects_of(self, text: StatementText) -> dict[str, str]:
        """Why DuckDB cannot take some of them."""
        pairs = ((name, self.objects.get(text.number_of(name))) for name in text.parameters)
        return {name: why for name, why in pairs if why is not None}

    def plain(self, text: StatementText) -> dict[str, Any]:
        """All values for a statement without calls. Raises QueryError for one that DuckDB cannot
        take."""
        for why in self.objects_of(text).values():
            raise QueryError(why)
        return self.of(text)


def read_parameters(
    given: object, texts: Sequence[StatementText], database: Database
) -> Parameters:
    """Check what is given for the parameters of all statements. Raises QueryError."""
    names = (text.number_of(name) for text in texts for name in text.parameters)
    needed = list(dict.fromkeys(names))
    for text in texts:
        head = read_head(text.given) if text.parameters and text.kind == "CREATE" else None
        if head is not None and head.kind != "TABLE":
            raise QueryError(
                "A view or macro cannot have parameters of the query. Write the value into it, or "
                "make it a parameter of a macro."
            )
    if given is None:
        if needed:
            raise QueryError(
                f"The query needs a value for {_listed(needed)}. Give params: a list for ? and "
                "$1, or names and values for $name."
            )
        return Parameters({})
    values = _by_name(given, needed)
    if missing := [name for name in needed if name not in values]:
        raise QueryError(
            f"params has no value for {_listed(missing)}. It has {_listed(values) or 'none'}."
        )
    if surplus := [name for name in values if name not in needed]:
        raise QueryError(
            f"params has a value for {_listed(surplus)}, which the query does not use; leave it "
            "out."
        )
    objects: dict[str, str] = {}
    for name, value in values.items():
        values[name] = _plain(value)
        try:
            _check(name, values[name], database)
        except QueryError as error:
            if not isinstance(value, Mapping | type):
                raise
            objects[name] = str(error)
    return Parameters(values, objects)


def _by_name(given: object, needed: Iterable[str]) -> dict[str, Any]:
    by_number = [name for name in needed if name.isdigit()]
    if isinstance(given, Mapping):
        if by_number:
            raise QueryError(
                f"The query numbers its parameters ({_listed(by_number)}), so params must be a "
                "list."
            )
        return {str(name).removeprefix("$").lower(): value for name, value in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if named := [name for name in needed if not name.isdigit()]:
            raise QueryError(
                f"The query names its parameters, so params must be a dict, e.g. "
                f"{{'{named[0]}': 1}}."
            )
        return {str(number): value for number, value in enumerate(given, 1)}
    raise QueryError(
        f"params is {given!r:.60}; it must be a list for ? and $1, or a dict for $name."
    )


def _plain(value: Any) -> Any:
    """A value without the types of numpy, most of which DuckDB does not take."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _check(name: str, value: Any, database: Database) -> None:
    """Raises QueryError for a value that DuckDB cannot take."""
    if not isinstance(value, str):
        database.try_value(name, value)
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise half_a_character(f"The parameter ${name}", error) from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"${name}" for name in names)
