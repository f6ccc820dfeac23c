"""The values of a query's parameters: `?` and `$1` from a list, `$name` from a dict.

A value never becomes SQL text by itself. It is a literal of the tree, which the generator of SQL
quotes, or a variable of DuckDB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.source import FIELD_NAME, VALUE, call_number, named_like
from relquery.sql.statements.heads import read_head
from relquery.sql.statements.texts import Text

_BIGINT = 2**63 - 1
_INTEGER = 2**31 - 1
_DIGITS = 38  # of a DECIMAL
# Parents under which a number stays a bare literal, as if it were written there.
_BARE = (
    exp.Limit,
    exp.Offset,
    exp.Fetch,
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Between,
    exp.In,
    exp.PropertyEQ,
    exp.Kwarg,
    exp.Paren,
    exp.Neg,
)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Values by lower-case name, or by number from "1".

    objects: for values that DuckDB cannot take, why. Only a call may have them as arguments.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of parameters. Raises QueryError for one that DuckDB cannot take."""
        for name in names:
            if name.lower() in self.objects:
                raise QueryError(self.objects[name.lower()])
        return {name: self.values[name.lower()] for name in names}

    def known(self) -> dict[str, Any]:
        """All values that DuckDB can take."""
        return {name: one for name, one in self.values.items() if name not in self.objects}

    def put(self, tree: exp.Expr) -> dict[str, Any]:
        """Replace the parameters in a statement, in place. Returns variables of DuckDB to set.

        Each value is also in the metadata of its node, as VALUE. One that DuckDB cannot take stays
        a placeholder. Raises QueryError unless that is an argument of a call.
        """
        variables: dict[str, Any] = {}
        for node in list(tree.find_all(exp.Placeholder)):
            name = node.name.lower()
            put = node if name in self.objects else _node(name, self.values[name], node.parent)
            if isinstance(put, exp.Anonymous):
                variables[f"{ours.PARAMETER}{name}"] = self.values[name]
            put.meta[VALUE] = self.values[name]
            if _is_argument(node):
                own = f"${name}" if name.isdigit() else node.name
                put.meta[FIELD_NAME] = own
                named_like(put, node)
            elif put is node:
                raise QueryError(self.objects[name])
            if put is not node:
                node.replace(put)
        return variables


def read_parameters(given: object, texts: Sequence[Text], database: Database) -> Parameters:
    """Check what is given for the parameters of all statements. Raises QueryError."""
    needed = {name.lower(): name for text in texts for name in text.parameters}
    for text in texts:
        if text.parameters and text.kind == "CREATE" and _is_view(text):
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
            _check(needed[name], values[name], database)
        except QueryError as error:
            if not isinstance(value, Mapping | type):
                raise
            objects[name] = str(error)
    return Parameters(values, objects)


@contextmanager
def variables_set(database: Database, variables: Mapping[str, Any]) -> Iterator[None]:
    """A block in which DuckDB has these variables."""
    with ExitStack() as stack:
        for name, value in variables.items():
            database.set_variable(name, value)
            stack.callback(database.reset_variable, name)
        yield


def _by_name(given: object, needed: Mapping[str, str]) -> dict[str, Any]:
    by_number = [name for name in needed if name.isdigit()]
    if isinstance(given, Mapping):
        if by_number:
            raise QueryError(
                f"The query numbers its parameters ({_listed(by_number)}), so params must be a "
                "list."
            )
        return {str(name).removeprefix("$").lower(): value for name, value in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if named := [needed[name] for name in needed if not name.isdigit()]:
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
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _check(name: str, value: Any, database: Database) -> None:
    """Raises QueryError for a value that DuckDB cannot take."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise QueryError(
                f"The parameter ${name} contains half a character at position {error.start} (a "
                "lone surrogate). Decode it as UTF-16 with surrogate pairs joined."
            ) from error
    elif _literal(value) is None:
        database.try_value(name, value)


def _literal(value: Any) -> exp.Expr | None:
    """The literal that DuckDB reads as exactly this value; None if there is none."""
    match value:
        case None:
            return exp.null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            return exp.Literal.string(value)
        case list() if value and all(isinstance(one, str) for one in value):
            return exp.Array(expressions=[exp.Literal.string(one) for one in value])
        case int() | float() | Decimal():
            digits = _digits(value)
            is_negative = math.copysign(1, value) < 0
            number = None if digits is None else exp.Literal.number(digits)
            return exp.Neg(this=number) if number is not None and is_negative else number
    return None


def _digits(value: int | float | Decimal) -> str | None:
    """The literal of a number without its sign; None if DuckDB might round it."""
    if isinstance(value, int):
        return str(abs(value)) if abs(value) <= _BIGINT else None
    if not math.isfinite(value):
        return None
    if isinstance(value, float):
        text = repr(abs(value))
        return text if "e" in text else f"{text}e0"
    text = f"{value.copy_abs():f}"  # abs rounds to the digits of a context
    return text if "." in text and len(text) <= _DIGITS else None


def _node(name: str, value: Any, parent: exp.Expr | None) -> exp.Expr:
    """The expression for a value below `parent`.

    An integer has the type of a parameter where a literal might get another one.
    """
    literal = _literal(value)
    if literal is None:
        return _variable(name)
    if isinstance(parent, _BARE) or (parent is not None and call_number(parent) is not None):
        return literal
    if isinstance(value, int) and not isinstance(value, bool):
        return exp.cast(literal, "INTEGER" if abs(value) <= _INTEGER else "BIGINT", copy=False)
    return exp.paren(literal) if isinstance(literal, exp.Neg) else literal


def _is_argument(node: exp.Expr) -> bool:
    """Whether a node is an argument of an LLM call, or the value of an option."""
    parent = node.parent
    if isinstance(parent, exp.PropertyEQ | exp.Kwarg):
        parent = parent.parent
    return parent is not None and call_number(parent) is not None


def _variable(name: str) -> exp.Expr:
    text = exp.Literal.string(f"{ours.PARAMETER}{name}")
    return exp.Anonymous(this="getvariable", expressions=[text])


def _listed(names: Any) -> str:
    return ", ".join(f"${name}" for name in names)


def _is_view(text: Text) -> bool:
    head = read_head(text.given)
    return head is not None and head.kind != "TABLE"
