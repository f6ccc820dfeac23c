"""What is typed: completed and coloured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from relquery.cli.shell.split import (
    BEFORE_A_TABLE,
    FUNCTIONS,
    KEYWORDS,
    SEARCHING,
    Tables,
    entries,
    named,
    pieces,
    unquoted,
)
from relquery.sql.names import quoted

Words = Callable[[], Iterable[str]]
_TYPED = re.compile(r'(?:((?:"(?:[^"]|"")+"|[^\W\d]\w*)(?:\.\w+)*)\.)?([^\W\d]\w*)?$')
_IN_BRACES = re.compile(r"\{(?:(\w+)\.)?(\w*)$")
_SEARCHED = re.compile(r"(?<!\w)(\w+)\s*\(\s*$")
_LAST_WORD = re.compile(r"(\w+)\s+$")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


class ShellCompleter(Completer):
    """Completes the last word before the cursor.

    tables: of the connection. commands: the words that may follow each dot-command; None if it
        takes a file name.
    """

    def __init__(self, tables: Callable[[], Tables], commands: Mapping[str, Words | None]) -> None:
        self._tables, self._commands = tables, commands

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """See Completer."""
        before = entries(document.text_before_cursor + "\0").rest.removesuffix("\0")
        line = document.current_line_before_cursor
        if not before and line.lstrip().startswith("."):
            yield from self._of_command(line.lstrip())
            return
        after = document.text_after_cursor
        end = next((one.start for one in pieces(after) if one.kind == "end"), len(after))
        yield from self._of_statement(before, before + after[:end])

    def _of_command(self, line: str) -> Iterator[Completion]:
        name, blank, argument = line.partition(" ")
        if not blank:
            yield from _matching(self._commands, name)
        elif name in self._commands:
            words = self._commands[name]
            yield from _files(argument) if words is None else _matching(words(), argument.lstrip())

    def _of_statement(self, before: str, statement: str) -> Iterator[Completion]:
        tables = self._tables()
        last = next((one for one in reversed(list(pieces(before))) if one.is_open), None)
        if last is not None:
            if last.kind == "text":
                yield from _in_text(before, last.start, statement, tables)
            return
        typed = _TYPED.search(before)
        assert typed is not None  # it matches nothing, too
        word = typed[2] or ""
        found = named(statement[: len(before) - len(word)] + statement[len(before) :], tables)
        if typed[1] is not None:
            yield from _columns(typed[1], word, found or tables)
            return
        previous = _LAST_WORD.search(before[: len(before) - len(word)])
        yield from self._words(word, previous[1].upper() if previous else "", found, tables)

    def _words(
        self, word: str, previous: str, found: Tables, tables: Tables
    ) -> Iterator[Completion]:
        of_tables = list(_matching(map(_as_sql, tables), word, "table"))
        if previous in BEFORE_A_TABLE:
            yield from of_tables
            return
        yield from _columns(None, word, found or tables)
        yield from of_tables
        for name, arguments in FUNCTIONS.items():
            if name.startswith(word.upper()):
                text = name.lower() if word.islower() else name
                yield Completion(f"{text}(", -len(word), f"{text}({arguments})", "relquery")
        if word:
            keywords = map(str.lower, KEYWORDS) if word.islower() else KEYWORDS
            yield from _matching(keywords, word)


def _in_text(before: str, start: int, statement: str, tables: Tables) -> Iterator[Completion]:
    """Columns in braces; tables and their columns if the text says what a function searches.

    start: where the text begins.
    """
    inside = _IN_BRACES.search(before, start)
    function = _SEARCHED.search(before[:start])
    if inside is not None:
        yield from _columns(inside[1], inside[2], named(statement, tables) or tables)
    elif function is not None and function[1].lower() in SEARCHING and before[start] == "'":
        typed = before[start + 1 :]
        of_columns = (f"{name}.{column}" for name in tables for column in tables[name])
        yield from _matching(of_columns if "." in typed else tables, typed, "searched")


def _columns(table: str | None, word: str, tables: Tables) -> Iterator[Completion]:
    """Columns of one table, or of all."""
    of: Mapping[str, Sequence[str]] = tables
    if table is not None:
        of = {name: columns for name, columns in tables.items() if name.lower() == unquoted(table)}
    by_column: dict[str, str] = {}
    for name, columns in of.items():
        for column in columns:
            by_column.setdefault(column, name)
    for column, name in by_column.items():
        if column.lower().startswith(word.lower()):
            yield Completion(_as_sql(column), -len(word), column, f"column of {name}")


def _matching(words: Iterable[str], typed: str, meta: str = "") -> Iterator[Completion]:
    for word in words:
        if word.lstrip('"').lower().startswith(typed.lower()):
            yield Completion(word, -len(typed), display_meta=meta)


def _files(typed: str) -> Iterator[Completion]:
    """Paths that begin as typed, behind the `=` of NAME=FILE if there is one."""
    start = typed.rpartition("=")[2].lstrip()
    folder, slash, name = start.rpartition("/")
    try:
        paths = sorted(Path(f"{folder}{slash}" or ".").expanduser().iterdir())
    except (OSError, RuntimeError):  # no such folder, or no such home
        return
    for path in paths:
        if path.name.startswith(name) and (name or not path.name.startswith(".")):
            yield Completion(path.name + ("/" if path.is_dir() else ""), -len(name))


def _as_sql(name: str) -> str:
    """A name as it is written in SQL; that of a table may be a path."""
    parts = name.split(".")
    if not all(map(_PLAIN_NAME.fullmatch, parts)):
        return quoted(name)
    return ".".join(quoted(part) if part.upper() in KEYWORDS else part for part in parts)


STYLE = Style.from_dict(
    {
        "prompt": "bold",
        "continued": "ansibrightblack",
        "sql.keyword": "ansiblue bold",
        "sql.function": "ansimagenta bold",
        "sql.text": "ansigreen",
        "sql.number": "ansicyan",
        "sql.comment": "ansibrightblack",
        "sql.name": "",
        "sql.end": "",
        "sql.code": "",
        "command": "ansiyellow",
    }
)
_WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*|[^\w]+")
_KEYWORDS = frozenset(KEYWORDS)


class SqlLexer(Lexer):
    """Colours keywords, functions of relquery, texts, numbers and comments."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """See Lexer."""
        lines = list(split_lines(list(_styled(document.text))))
        return lambda number: lines[number] if number < len(lines) else []


def _styled(text: str) -> Iterator[tuple[str, str]]:
    first = next(iter(entries(text).whole), "")
    if text.lstrip().startswith(".") or (first.startswith(".") and ";" not in text):
        yield "class:command", text
        return
    for piece in pieces(text):
        part = text[piece.start : piece.stop]
        if piece.kind != "code":
            yield f"class:sql.{piece.kind}", part
        else:
            for word in _WORD.findall(part):
                yield _style_of(word), word


def _style_of(word: str) -> str:
    if word.upper() in FUNCTIONS:
        return "class:sql.function"
    if word.upper() in _KEYWORDS:
        return "class:sql.keyword"
    return "class:sql.number" if word[0].isdigit() else "class:sql.code"
