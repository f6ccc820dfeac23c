"""What Tab offers at a place in typed text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from relquery.cli.shell.lexer import (
    BEFORE_A_TABLE,
    FUNCTIONS,
    KEYWORDS,
    SEARCHING,
    entries,
    is_open,
    pieces,
)
from relquery.sql.names import quoted
from relquery.sql.parser.tokens import read_path, tokenize

Tables = Mapping[str, Sequence[str]]
"""Columns by table."""
Words = Callable[[], Iterable[str]]
_TYPED = re.compile(r'(?:((?:"(?:[^"]|"")+"|[^\W\d]\w*)(?:\.\w+)*)\.)?([^\W\d]\w*)?$')
_IN_BRACES = re.compile(r"\{(?:(\w+)\.)?(\w*)$")
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
        before = entries(f"{document.text_before_cursor}x").rest.removesuffix("x")
        line = document.current_line_before_cursor
        if not before and line.lstrip().startswith("."):
            yield from self._of_command(line.lstrip())
            return
        after = document.text_after_cursor
        end = next((one.start for one in pieces(after) if one.text == ";"), len(after))
        yield from self._of_statement(before, before + after[:end])

    def _of_command(self, line: str) -> Iterator[Completion]:
        name, blank, argument = line.partition(" ")
        if not blank:
            yield from _matching(self._commands, name)
        elif name in self._commands:
            words = self._commands[name]
            yield from _files(argument) if words is None else _matching(words(), argument.lstrip())

    def _of_statement(self, before: str, statement: str) -> Iterator[Completion]:
        tables, read = self._tables(), pieces(before)
        if is_open(before):
            if read and read[-1].is_quoted:
                yield from _in_text(before, statement, tables)
            return
        typed = _TYPED.search(before)
        assert typed is not None  # it matches nothing, too
        word = typed[2] or ""
        found = named(statement[: len(before) - len(word)] + statement[len(before) :], tables)
        if typed[1] is not None:
            yield from _columns(typed[1], word, found or tables)
            return
        last = read[-2:-1] if word else read[-1:]
        yield from self._words(word, last[0].text.upper() if last else "", found, tables)

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


def named(statement: str, tables: Tables) -> dict[str, Sequence[str]]:
    """Columns of the tables that a statement names, by lower-case name and alias."""
    by_name = {name.lower(): columns for name, columns in tables.items()}
    found: dict[str, Sequence[str]] = {}
    tokens = tokenize(statement)
    for at, token in enumerate(tokens):
        path, after = read_path(tokens, at)
        name = ".".join(path).lower()
        if not token.is_name or name not in by_name:
            continue
        found[name] = by_name[name]
        alias = tokens[after : after + 2]
        if alias and alias[0].word == "AS":
            alias = alias[1:]
        if alias and alias[0].is_name and alias[0].word not in KEYWORDS:
            found[alias[0].name.lower()] = by_name[name]
    return found


def _in_text(before: str, statement: str, tables: Tables) -> Iterator[Completion]:
    """Columns in braces; tables and their columns if the text says what a function searches."""
    *read, text = pieces(before)
    inside = _IN_BRACES.search(before, text.start)
    function = [one.text.lower() for one in read[-2:]]
    if inside is not None:
        yield from _columns(inside[1], inside[2], named(statement, tables) or tables)
    elif len(function) == 2 and function[0] in SEARCHING and function[1] == "(":
        typed = before[text.start + 1 :]
        of_columns = (f"{name}.{column}" for name in tables for column in tables[name])
        yield from _matching(of_columns if "." in typed else tables, typed, "searched")


def _columns(table: str | None, word: str, tables: Tables) -> Iterator[Completion]:
    """Columns of one table, or of all."""
    of: Mapping[str, Sequence[str]] = tables
    if table is not None:
        wanted = ".".join(read_path(tokenize(table), 0)[0]).lower()
        of = {name: columns for name, columns in tables.items() if name.lower() == wanted}
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
