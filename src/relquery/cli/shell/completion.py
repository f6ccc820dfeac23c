"""Typed text: cut into tokens and entries that can be run as DuckDB cuts it, and completed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import duckdb
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from relquery.sql.names import quoted

_COMMANDS = {"exit": ".quit", "quit": ".quit", "help": ".help"}


class ShellToken(NamedTuple):
    """A token, from `start` up to `stop`, in characters."""

    text: str
    start: int
    stop: int
    is_quoted: bool
    """Whether it is a text in quotes."""
    is_comment: bool


def pieces(text: str, at: int = 0) -> list[ShellToken]:
    """The tokens of a text from a place on that is in no quotes and in no comment."""
    read = text[at:].encode(errors="replace").decode()  # as a half of a character has no bytes
    cuts, kinds = duckdb.tokenize(read), duckdb.token_type
    places = [place for place, char in enumerate(read, at) for _ in char.encode()]
    bounds = pairwise([*(places[start] for start, _ in cuts), len(text)])
    cut = ((start, text[start:stop].rstrip()) for start, stop in bounds)
    return [
        ShellToken(
            begin,
            start,
            start + len(begin),
            is_quoted=kind == kinds.string_const,
            is_comment=kind == kinds.comment,
        )
        for (start, begin), (_, kind) in zip(cut, cuts, strict=True)
    ]


def is_open(text: str) -> bool:
    """Whether a text ends in quotes that nothing closes, or in a comment."""
    last = pieces(f"{text} ;")
    return not last or last[-1].text != ";"


class Entries(NamedTuple):
    """The complete entries of a text, and the text after the last of them."""

    whole: list[str]
    rest: str


def entries(text: str) -> Entries:
    """The entries of a text, in order. `exit`, `quit` and `help` alone mean the dot-commands."""
    if command := _COMMANDS.get(text.strip().rstrip(";").lower()):
        return Entries([command], "")
    whole: list[str] = []
    begin: int | None = None  # of an entry
    some = iter(pieces(text))
    while (piece := next(some, None)) is not None:
        if begin is None:
            if piece.is_comment and not (piece.text.startswith("/*") and is_open(piece.text)):
                continue
            begin = piece.start
            if piece.text.startswith("."):
                end = text.find("\n", begin) if "\n" in text[begin:] else len(text)
                whole.append(text[begin:end].strip())
                begin, some = None, iter(pieces(text, end))  # a command's quotes are not SQL's
                continue
        if piece.text == ";":
            whole += [text[begin : piece.stop]] if piece.start > begin else []
            begin = None
    return Entries(whole, "" if begin is None else text[begin:])


def is_whole(text: str) -> bool:
    """Whether Enter at the end of a text runs it instead of adding a line."""
    return not entries(text).rest


FUNCTIONS = {
    "LLM": "'prompt', column, ...",
    "AI_COMPLETE": "'prompt', column, ...",
    "AI_FILTER": "'question', column, ...",
    "AI_CLASSIFY": "column, ['label', ...]",
    "AI_EXTRACT": "column, 'name TYPE, ...'",
    "AI_SCORE": "'question', column, ...",
    "AI_RANK": "'criterion', column, ...",
    "AI_AGG": "'question', column",
    "AI_SUMMARIZE_AGG": "column",
    "AI_SENTIMENT": "text, ['aspect', ...]",
    "AI_TRANSLATE": "text, 'from', 'to'",
    "AI_SUMMARIZE": "text, words",
    "AI_REDACT": "text, ['NAME', ...]",
    "AI_COUNT_TOKENS": "text",
    "passages": "'table', question, k",
    "AI_SEARCH": "'table', question, k",
    "AI_DEDUP": "'table', text, threshold",
    "AI_SIMILARITY": "text, text",
    "AI_EMBED": "text",
    "AI_NEAREST": "texts, others, k",
    "AI_DUPLICATES": "texts, threshold",
    "BAG": "list",
    "MODULE": "column",
}
"""The functions of relquery, and the arguments of each."""

BEFORE_A_TABLE = frozenset({"DESCRIBE", "FROM", "INTO", "JOIN", "SUMMARIZE", "TABLE", "UPDATE"})
"""Keywords that a table follows."""

KEYWORDS = (
    "ALL", "ALTER", "ANALYZE", "AND", "ANTI", "AS", "ASC", "ASOF", "ATTACH", "BEGIN", "BETWEEN",
    "BY", "CASE", "CAST", "CHECKPOINT", "COLUMNS", "COMMIT", "COPY", "CREATE", "CROSS", "DELETE",
    "DESC", "DESCRIBE", "DETACH", "DISTINCT", "DROP", "ELSE", "END", "EXCEPT", "EXCLUDE", "EXECUTE",
    "EXISTS", "EXPLAIN", "FALSE", "FILTER", "FIRST", "FROM", "FULL", "GROUP", "HAVING", "ILIKE",
    "IN", "INNER", "INSERT", "INTERSECT", "INTO", "IS", "JOIN", "LAST", "LEFT", "LIKE", "LIMIT",
    "MACRO", "NATURAL", "NOT", "NULL", "NULLS", "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER",
    "PARTITION", "PIVOT", "PREPARE", "QUALIFY", "REPLACE", "RETURNING", "RIGHT", "ROLLBACK",
    "SELECT", "SEMI", "SET", "SHOW", "SUMMARIZE", "TABLE", "TABLES", "TEMP", "THEN", "TO", "TRUE",
    "TRY_CAST", "UNION", "UNPIVOT", "UPDATE", "USING", "VALUES", "VIEW", "WHEN", "WHERE", "WINDOW",
    "WITH",
)  # fmt: skip

Tables = Mapping[str, Sequence[str]]
"""Columns by table."""
Words = Callable[[], Iterable[str]]
_TYPED = re.compile(r'(?:("[^"]+"|[\w.]+)\.)?(\w*)$')
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_FILES = PathCompleter(expanduser=True, file_filter=lambda path: "/." not in path)


class ShellCompleter(Completer):
    """A completer of the last word before the cursor."""

    def __init__(self, tables: Callable[[], Tables], commands: Mapping[str, Words | None]) -> None:
        """tables: of the connection. commands: the words that may follow each dot-command; None if
        it takes a file name."""
        self._tables, self._commands = tables, commands

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """See Completer."""
        before = entries(f"{document.text_before_cursor}x").rest.removesuffix("x")
        line = document.current_line_before_cursor.lstrip()
        if not before and line.startswith("."):
            yield from self._of_command(line, event)
        elif not is_open(before):
            yield from self._of_statement(before, document.text_after_cursor)

    def _of_command(self, line: str, event: CompleteEvent) -> Iterator[Completion]:
        name, blank, argument = line.partition(" ")
        if not blank:
            yield from _matching(self._commands, name)
        elif name in self._commands:
            words = self._commands[name]
            if words is not None:
                yield from _matching(words(), argument.lstrip())
                return
            path = argument.rpartition("=")[2].lstrip()  # of NAME=FILE
            yield from _FILES.get_completions(Document(path), event)

    def _of_statement(self, before: str, after: str) -> Iterator[Completion]:
        tables = self._tables()
        words = set(re.findall(r"\w+", f"{before} {after}".lower()))
        named = {
            name: tables[name] for name in tables if {*re.findall(r"\w+", name.lower())} <= words
        }
        typed = _TYPED.search(before)
        assert typed is not None  # it matches nothing, too
        table, word = typed[1], typed[2]
        if table is not None:
            own = tables.get(table.strip('"'))  # None for a table by another name
            yield from _columns(word, named or tables if own is None else {table: own})
            return
        read = pieces(before)
        last = [piece.text.upper() for piece in (read[:-1] if word else read)][-1:]
        if last and last[0] in BEFORE_A_TABLE:
            yield from _matching(map(_as_sql, tables), word, "table")
            return
        yield from _columns(word, named or tables)
        yield from _matching(map(_as_sql, tables), word, "table")
        yield from _functions_and_keywords(word)


def _functions_and_keywords(word: str) -> Iterator[Completion]:
    for name, arguments in FUNCTIONS.items():
        if name.startswith(word.upper()):
            text = name.lower() if word.islower() else name
            yield Completion(f"{text}(", -len(word), f"{text}({arguments})", "relquery")
    if word:
        yield from _matching(map(str.lower, KEYWORDS) if word.islower() else KEYWORDS, word)


def _columns(word: str, tables: Tables) -> Iterator[Completion]:
    by_column = {column: name for name in reversed([*tables]) for column in tables[name]}
    for column in dict.fromkeys(column for columns in tables.values() for column in columns):
        if column.lower().startswith(word.lower()):
            about = f"column of {by_column[column]}"
            yield Completion(_as_sql(column), -len(word), column, about)


def _matching(words: Iterable[str], typed: str, meta: str = "") -> Iterator[Completion]:
    for word in words:
        if word.lstrip('"').lower().startswith(typed.lower()):
            yield Completion(word, -len(typed), display_meta=meta)


def _as_sql(name: str) -> str:
    """A name as it is written in SQL; that of a table may be a path."""
    parts = name.split(".")
    if not all(map(_PLAIN_NAME.fullmatch, parts)):
        return quoted(name)
    return ".".join(quoted(part) if part.upper() in KEYWORDS else part for part in parts)
