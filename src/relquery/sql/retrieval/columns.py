"""The columns that a statement searches: the names in its text, and the columns that these mean.

A table is named by its name or by a path, as DuckDB reads it: docs, schema.docs, database.docs,
database.schema.docs. A name with dots needs no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from relquery.errors import QueryError, UnknownColumnError, did_you_mean
from relquery.retrieval.corpus import distinct_texts
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.names import quoted
from relquery.sql.parser.tokens import Token, between_commas, closing, tokenize

OF_TABLES = (ours.PASSAGES, ours.SEARCH, ours.DEDUP)
"""Functions whose first argument names a table, and whose fourth may name a column of it."""

_WORD = re.compile(r"\w+")
_PART = r'"(?:[^"]|"")+"|[^".]+'
_PATH = re.compile(rf"(?:{_PART})(?:\.(?:{_PART})){{0,2}}")
_THIRD, _COLUMN = 2, 3
_NAMING = (":=", "=>")
_WRITTEN = {
    ours.PASSAGES: "passages('{}', question, 5, '{}')",
    ours.SEARCH: "AI_SEARCH('{}', question, 5, '{}')",
    ours.DEDUP: "AI_DEDUP('{}', text, 0.9, '{}')",
    "": "span.retrieve(question, corpus='{}.{}')",
}


class Named(NamedTuple):
    """A table, and a column of it, as a statement names them. column: "" if it names none."""

    table: str
    column: str

    def lower(self) -> Named:
        """As DuckDB compares names."""
        return Named(self.table.lower(), self.column.lower())


class TextColumn(NamedTuple):
    """SQL of a table and of a column of text."""

    table: str
    text: str

    def read(self, database: Database) -> pa.Array:
        """The distinct texts of the column."""
        return distinct_texts(database.fetch(f"SELECT {self.text} FROM {self.table}").column(0))

    def __str__(self) -> str:
        return f"{self.table}.{self.text}"


def find_table(written: str, database: Database) -> str | None:
    """SQL of the table or view that a text names; None if there is none."""
    known = database.paths()
    parts = re.findall(_PART, written) if _PATH.fullmatch(written) else []
    path = [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts]
    for each in ([written], path):
        if tuple(map(str.lower, each)) in known:
            return ".".join(map(quoted, each))
    return None


def find_column(named: Named, database: Database, function: str = "") -> TextColumn:
    """The column that is named, or the only one with text. function: that searches it, for errors.

    Raises QueryError, also for a table that does not exist, and UnknownColumnError.
    """
    table = _table(named.table, database, function)
    columns = database.columns(f"SELECT * FROM {table}")
    if named.column:
        for name, kind in columns:
            if name.lower() == named.column.lower():
                is_text = kind == "VARCHAR"
                return TextColumn(table, quoted(name) if is_text else f"{quoted(name)}::VARCHAR")
        raise UnknownColumnError(named.column, f"'{named.table}'", [name for name, _ in columns])
    texts = [name for name, kind in columns if kind == "VARCHAR"]
    if len(texts) == 1:
        return TextColumn(table, quoted(texts[0]))
    some = f"{len(texts)} columns of text ({', '.join(texts)})" if texts else "no column of text"
    example = texts[0] if texts else columns[0][0]
    raise QueryError(
        f"The table '{named.table}' has {some}. Name the one to search: "
        f"{_written(function, Named(named.table, example))}."
    )


def _table(name: str, database: Database, function: str) -> str:
    """SQL of a table that a text names."""
    if ("VIEW", name.lower()) in database.kept.definitions:
        raise QueryError(
            f"'{name}' is a view with LLM calls, which cannot be searched. Save its rows first: "
            f"CREATE TABLE name AS FROM {quoted(name)}."
        )
    known = find_table(name, database)
    if known is not None:
        return known
    table, _, column = name.rpartition(".")
    tables = database.tables()
    hint = did_you_mean(name, tables)
    if table and find_table(table, database) is not None:
        hint = f" Name a column of '{table}' apart: {_written(function, Named(table, column))}."
    raise QueryError(
        f"The table '{name}' to search does not exist. Tables: {', '.join(tables) or 'none'}.{hint}"
    )


def _written(function: str, named: Named) -> str:
    """How a function searches a column. function: "" for a span query."""
    return _WRITTEN[function].format(*named)


def named_in(
    sql: str, definitions: Iterable[tuple[str, str]], functions: Collection[str]
) -> dict[Named, str]:
    """What a statement searches, itself or in a view or macro that it reads, and a function that
    does. In lower case.

    definitions: (name, text) of views and macros. functions: those that search. Raises QueryError
    for a column in place of a number.
    """
    waiting = [(name.lower(), text) for name, text in definitions]
    texts, by_name = [sql], dict[Named, str]()
    while texts:
        text = texts.pop()
        for function, arguments in _calls(text, functions):
            if (named := _named(function, arguments)) is not None:
                by_name.setdefault(named.lower(), function)
        read = set(_WORD.findall(text.lower()))
        texts += [body for name, body in waiting if name in read]
        waiting = [each for each in waiting if each[0] not in read]
    return by_name


def unquoted_table(sql: str, column: str, functions: Collection[str]) -> QueryError | None:
    """The error if a column that does not exist is meant to be the table that a function searches.

    sql: a statement. column: its name. functions: those that there are.
    """
    for function, arguments in _calls(sql, [name for name in OF_TABLES if name in functions]):
        first = arguments[0] if arguments else []
        if len(first) == 1 and first[0].name.lower() == column.lower() and _text(first) is None:
            usage = ours.USAGES[function].replace("'table'", f"'{column}'")
            return QueryError(f"The table to search must be a text, in quotes: {usage}.")
    return None


def is_entry(sql: str, table: str) -> bool:
    """Whether a name is that of a WITH entry of a statement. table: in lower case."""
    tokens = tokenize(sql)
    return any(
        name.name.lower() == table and alias.word == "AS" and opening.text == "("
        for name, alias, opening in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def _calls(sql: str, functions: Collection[str]) -> Iterator[tuple[str, list[list[Token]]]]:
    """The calls of some functions, and their arguments."""
    tokens = tokenize(sql)
    for index, (name, opening) in enumerate(pairwise(tokens)):
        if name.name.lower() in functions and opening.text == "(":
            yield name.name.lower(), between_commas(tokens[index + 2 : closing(tokens, index + 1)])


def _named(function: str, arguments: Sequence[Sequence[Token]]) -> Named | None:
    """What a call searches; None if the call does not say it in texts."""
    _check_places(function, arguments)
    texts = [_text(argument) for argument in arguments]
    column = texts[_COLUMN] if len(texts) > _COLUMN else ""
    if not texts or texts[0] is None or column is None:
        return None
    if len(texts) > _THIRD and (third := texts[_THIRD]) is not None:
        is_count = function != ours.DEDUP
        least = "a whole number above 0" if is_count else "above 0 and at most 1"
        raise QueryError(
            f"The {'number of texts to find' if is_count else 'threshold'} is {third!r}; it must "
            f"be {least}. It is the third argument, and a column is the fourth: "
            f"{_written(function, Named(texts[0], third))}."
        )
    return Named(texts[0], column)


def _check_places(function: str, arguments: Sequence[Sequence[Token]]) -> None:
    """Raises QueryError for a named argument, and for a threshold in place of the text."""
    name = ours.USAGES[function].partition("(")[0]
    table = next(
        (name_given for argument in arguments[:1] if (name_given := _text(argument)) is not None),
        "table",
    )
    for argument in arguments:
        if len(argument) > 2 and argument[1].text in _NAMING:
            value = argument[2].text if _is_number(argument[2:]) else "5"
            text = "text" if function == ours.DEDUP else "question"
            raise QueryError(
                f"{name} takes no named arguments; write the number third: "
                f"{name}('{table}', {text}, {value})."
            )
    if function == ours.DEDUP and len(arguments) > 1 and _is_number(arguments[1]):
        other = arguments[2] if len(arguments) > 2 else arguments[0]
        column = other[0].name if len(other) == 1 and _text(other) is None else "text"
        raise QueryError(
            "The table comes first, the text second and the threshold third: "
            f"{name}('{table}', {column}, {arguments[1][0].text})."
        )


def _is_number(argument: Sequence[Token]) -> bool:
    return len(argument) == 1 and argument[0].text.lstrip(".")[:1].isdigit()


def _text(argument: Sequence[Token]) -> str | None:
    """The value of an argument that is a text; None for any other."""
    if len(argument) != 1 or not argument[0].text.startswith("'"):
        return None
    return argument[0].text[1:-1].replace("''", "'")
