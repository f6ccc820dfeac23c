"""Typed text as DuckDB cuts it into tokens, and into entries that can be run."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import duckdb

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
