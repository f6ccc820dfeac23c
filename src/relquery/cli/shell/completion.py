"""Completions at a place in typed text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from relquery.cli.shell.entries import entries, is_open, pieces
from relquery.sql.names import quoted

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
