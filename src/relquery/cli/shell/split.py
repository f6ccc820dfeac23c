"""Splits typed text into entries, and names the tables that a statement reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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


_MARK = re.compile(
    r"""--[^\n]* | /\* | (?<!\w)[eE]' | ' | " | (?<![\w$])\$(?:[^\W\d]\w*)?\$ | ;""", re.VERBOSE
)
_CLOSING = {
    "'": re.compile(r"(?:[^']|'')*'"),
    '"': re.compile(r'(?:[^"]|"")*"'),
    "e'": re.compile(r"(?:\\.|''|[^'\\])*'", re.DOTALL),
}
_COMMENT = re.compile(r"/\*|\*/")
_BLANKS = re.compile(r"\s*")
_WORDS = {"exit": ".quit", "quit": ".quit", "help": ".help"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, from `start` up to `stop`.

    kind: a text in quotes, a quoted name, a comment, the `;` that ends a statement, or else code.
    is_open: whether the text ends before the piece does.
    """

    kind: Literal["code", "text", "name", "comment", "end"]
    start: int
    stop: int
    is_open: bool = False


class Entries(NamedTuple):
    """The complete entries of a text, and the text after the last of them."""

    whole: list[str]
    rest: str


def pieces(text: str, at: int = 0) -> Iterator[Piece]:
    """The parts of a text from a position that is not inside a quote or a comment."""
    while (mark := _MARK.search(text, at)) is not None:
        if mark.start() > at:
            yield Piece("code", at, mark.start())
        yield (piece := _marked(mark, text))
        at = piece.stop
    if at < len(text):
        yield Piece("code", at, len(text))


def entries(text: str) -> Entries:
    """The entries of a text, in order. `exit`, `quit` and `help` alone mean the dot-commands."""
    if command := _WORDS.get(text.strip().rstrip(";").lower()):
        return Entries([command], "")
    whole: list[str] = []
    at = _start(text, 0)
    while at < len(text):
        end = _line_end(text, at) if text[at] == "." else _statement_end(text, at)
        if end is None:
            return Entries(whole, text[at:])
        if entry := text[at:end].strip().lstrip(";"):
            whole.append(entry)
        at = _start(text, end)
    return Entries(whole, "")


def is_whole(text: str) -> bool:
    """Whether Enter at the end of a text runs it instead of adding a line."""
    return not entries(text).rest


def _marked(mark: re.Match[str], text: str) -> Piece:
    start, opening = mark.start(), mark[0]
    if opening == ";":
        return Piece("end", start, mark.end())
    if opening.startswith("--"):
        return Piece("comment", start, mark.end(), is_open=mark.end() == len(text))
    if opening == "/*":
        return _block_comment(text, start)
    kind: Literal["name", "text"] = "name" if opening == '"' else "text"
    if opening.startswith("$"):
        stop = text.find(opening, mark.end()) + len(opening)
        found = stop >= mark.end() + len(opening)
    else:
        closing = _CLOSING[opening.lower()].match(text, mark.end())
        found, stop = closing is not None, closing.end() if closing else 0
    return Piece(kind, start, stop) if found else Piece(kind, start, len(text), is_open=True)


def _block_comment(text: str, start: int) -> Piece:
    """A comment, which may contain comments, as in DuckDB."""
    depth = 0
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return Piece("comment", start, mark.end())
    return Piece("comment", start, len(text), is_open=True)


def _start(text: str, at: int) -> int:
    """Where the next entry starts: after blanks and comments that are not inside a statement."""
    while True:
        blanks = _BLANKS.match(text, at)
        at = blanks.end() if blanks else at
        piece = next(pieces(text, at), None)
        is_open_block = piece is not None and piece.is_open and text.startswith("/*", at)
        if piece is None or piece.kind != "comment" or is_open_block:
            return at
        at = piece.stop


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _statement_end(text: str, at: int) -> int | None:
    return next((piece.stop for piece in pieces(text, at) if piece.kind == "end"), None)


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
