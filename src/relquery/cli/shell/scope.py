"""The tables that a statement names, also while it is being typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from relquery.cli.shell.split import pieces
from relquery.cli.shell.vocabulary import KEYWORDS

Tables = Mapping[str, Sequence[str]]
"""Columns by table."""

_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d]\w*)'
_TABLE = re.compile(
    rf"({_NAME}(?:\.{_NAME})*)(?=(?:\s+(?:AS\s+)?({_NAME}))?)", re.IGNORECASE | re.DOTALL
)
_RESERVED = frozenset(KEYWORDS)


def named(statement: str, tables: Tables) -> dict[str, Sequence[str]]:
    """Columns of the tables that a statement names, by lower-case name and alias."""
    by_name = {name.lower(): columns for name, columns in tables.items()}
    found: dict[str, Sequence[str]] = {}
    for match in _TABLE.finditer(_code(statement)):
        name, alias = unquoted(match[1]), match[2] or ""
        if name in by_name:
            found[name] = by_name[name]
            if alias and alias.upper() not in _RESERVED:
                found[unquoted(alias)] = by_name[name]
    return found


def unquoted(name: str) -> str:
    """A name as it is compared: in lower case, without quotes."""
    return name.replace('""', "\0").replace('"', "").replace("\0", '"').lower()


def _code(statement: str) -> str:
    """A statement with a blank in place of each text and comment."""
    return "".join(
        statement[piece.start : piece.stop] if piece.kind in ("code", "name") else " "
        for piece in pieces(statement)
    )
