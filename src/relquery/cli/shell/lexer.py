"""Typed text as DuckDB cuts it: into tokens with colours, and into entries that can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import duckdb
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

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

SEARCHING = frozenset({"passages", "ai_search", "ai_dedup"})
"""Functions whose first argument names a table in quotes."""

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

_KINDS = duckdb.token_type
_COMMANDS = {"exit": ".quit", "quit": ".quit", "help": ".help"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A token, from `start` up to `stop`, in characters. kind: as DuckDB names it."""

    text: str
    kind: duckdb.token_type
    start: int
    stop: int

    @property
    def is_quoted(self) -> bool:
        """Whether it is a text in quotes."""
        return self.kind == _KINDS.string_const

    @property
    def is_comment(self) -> bool:
        """Whether it is one."""
        return self.kind == _KINDS.comment

    @property
    def is_name(self) -> bool:
        """Whether it may name a table or a column."""
        return self.kind in (_KINDS.identifier, _KINDS.keyword)


def pieces(text: str, at: int = 0) -> list[Piece]:
    """The tokens of a text from a place on that is in no quotes and in no comment."""
    read = text[at:].encode(errors="replace").decode()  # as a half of a character has no bytes
    found = duckdb.tokenize(read)
    places = [place for place, char in enumerate(read, at) for _ in char.encode()]
    bounds = pairwise([*(places[start] for start, _ in found), len(text)])
    cut = ((start, text[start:stop].rstrip()) for start, stop in bounds)
    return [
        Piece(one, kind, start, start + len(one))
        for (start, one), (_, kind) in zip(cut, found, strict=True)
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


STYLE = Style.from_dict(
    {
        "prompt": "bold",
        "continued": "ansibrightblack",
        "sql.keyword": "ansiblue bold",
        "sql.function": "ansimagenta bold",
        "sql.string_const": "ansigreen",
        "sql.numeric_const": "ansicyan",
        "sql.comment": "ansibrightblack",
        "command": "ansiyellow",
    }
)


class SqlLexer(Lexer):
    """Colours keywords, functions of relquery, texts, numbers and comments."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """See Lexer."""
        lines = list(split_lines(list(_styled(document.text))))
        return lambda number: lines[number] if number < len(lines) else []


def _styled(text: str) -> Iterator[tuple[str, str]]:
    if text.lstrip().startswith("."):
        yield "class:command", text
        return
    at = 0
    for piece in pieces(text):
        if piece.start > at:
            yield "", text[at : piece.start]
        name = "function" if piece.text.upper() in FUNCTIONS else piece.kind.name
        yield f"class:sql.{name}", piece.text
        at = piece.stop
    if at < len(text):
        yield "", text[at:]
