"""Calls of SQL functions as texts: their fields and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relquery.errors import ConfigError, unknown
from relquery.frames.read.langex import Field
from relquery.sql.binder.arguments import OF_ALL
from relquery.sql.names import quoted_text


def call(
    function: str, first: Sequence[str], fields: Iterable[Field], options: Mapping[str, object]
) -> str:
    """`function(first, ..., field, ..., option := value, ...)`."""
    given = [f"{name} := {literal(value)}" for name, value in options.items() if value is not None]
    return f"{function}({', '.join([*first, *(field.sql for field in fields), *given])})"


def literal(value: object) -> str:
    """A value as SQL: a text, a number, true or false, a list or a dict of these."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{quoted_text(key)}: {literal(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, Iterable):
        return f"[{', '.join(map(literal, value))}]"
    raise ConfigError(f"{value!r} is not a text, a number or a list, so it cannot be an option.")


def check_options(options: Mapping[str, object], verb: str, *more: str) -> dict[str, object]:
    """The options of a verb's call. Raises ConfigError for one that no call has."""
    known = (*OF_ALL, *more)
    for name in options:
        if name not in known:
            raise ConfigError(unknown("option", name, known, of=verb))
    return dict(options)
