"""Which columns a statement searches, read from its tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlglot import Token, TokenType

from relquery.sql import names as ours
from relquery.sql.read.tokens import between_commas, closing, tokenize

OF_TABLES = (ours.PASSAGES, ours.SEARCH, ours.DEDUP)
"""Functions whose first argument names a table, and whose fourth may name a column of it."""

_WORD = re.compile(r"\w+")
_COLUMN = 3


class Named(NamedTuple):
    """A table, and a column of it, as a statement names them. column: "" if it names none."""

    table: str
    column: str

    def lower(self) -> Named:
        """As DuckDB compares names."""
        return Named(self.table.lower(), self.column.lower())


def named_in(
    sql: str, definitions: Iterable[tuple[str, str]], functions: Collection[str]
) -> list[Named]:
    """What a statement searches, itself or in a view or macro that it reads.

    definitions: (name, text) of views and macros. functions: those that search.
    """
    waiting = [(name.lower(), text) for name, text in definitions]
    texts, found = [sql], list[Named]()
    while texts:
        text = texts.pop()
        found += _named(text, functions)
        read = set(_WORD.findall(text.lower()))
        texts += [body for name, body in waiting if name in read]
        waiting = [each for each in waiting if each[0] not in read]
    return list(dict.fromkeys(found))


def _named(sql: str, functions: Collection[str]) -> Iterator[Named]:
    tokens = tokenize(sql)
    for at, (name, opening) in enumerate(pairwise(tokens)):
        if name.text.lower() not in functions or opening.token_type is not TokenType.L_PAREN:
            continue
        given = between_commas(tokens[at + 2 : closing(tokens, at + 1)])
        texts = [_text(argument) for argument in given]
        column = texts[_COLUMN] if len(texts) > _COLUMN else ""
        if texts and texts[0] is not None and column is not None:
            yield Named(texts[0], column)


def _text(argument: Sequence[Token]) -> str | None:
    """The value of an argument that is a text; None for any other."""
    is_text = len(argument) == 1 and argument[0].token_type is TokenType.STRING
    return argument[0].text if is_text else None
