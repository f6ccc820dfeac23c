"""Splits typed text into entries: statements that end with `;`, and dot-commands of one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
