"""The tokens of a text, as DuckDB cuts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from relquery.sql import names as ours

_COMMENT, _STRING = duckdb.token_type.comment, duckdb.token_type.string_const
_NAMES = (duckdb.token_type.identifier, duckdb.token_type.keyword)
_DEPTHS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name, a literal or a sign. It stands from `start` to `end`, in characters."""

    text: str
    start: int
    end: int
    is_name: bool
    is_string: bool

    @property
    def word(self) -> str:
        """The text in capitals, to compare with a keyword."""
        return self.text.upper()

    @property
    def name(self) -> str:
        """What it names, without quotes."""
        if self.text.startswith('"'):
            return self.text[1:-1].replace('""', '"')
        return self.text


def tokenize(sql: str) -> list[Token]:
    """The tokens of a text without its comments."""
    found = duckdb.tokenize(sql)
    at = _Characters(sql)
    starts = [at(start) for start, _ in found] + [len(sql)]
    return [
        Token(text, start, start + len(text), kind in _NAMES, kind == _STRING)
        for start, end, (_, kind) in zip(starts, starts[1:], found, strict=False)
        if kind != _COMMENT and (text := sql[start:end].rstrip())
    ]


class _Characters:
    """Turns places in bytes, which DuckDB counts in, into places in characters."""

    def __init__(self, sql: str) -> None:
        self.places: list[int] | None = None
        if not sql.isascii():
            self.places = [at for at, char in enumerate(sql) for _ in char.encode(errors="replace")]
            self.places.append(len(sql))

    def __call__(self, byte: int) -> int:
        return byte if self.places is None else self.places[byte]


def step(token: Token) -> int:
    """How a token changes the depth of parentheses, brackets and braces: 1, 0 or -1."""
    return _DEPTHS.get(token.text, 0)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The place of the token that closes a parenthesis; the last one if nothing does."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += step(tokens[at])
        if depth == 0:
            return at
    return len(tokens) - 1


def on_top(tokens: Sequence[Token], start: int = 0) -> Iterator[int]:
    """The places of tokens in no parentheses, from one on."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += step(tokens[at])
        if depth == 0 or (depth == 1 and step(tokens[at]) > 0):
            yield at


def between_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """The runs of tokens between commas that are in no parentheses; empty ones are left out."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += step(token)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def words(tokens: Sequence[Token], start: int, count: int) -> list[str]:
    """Some tokens in capitals."""
    return [token.word for token in tokens[start : start + count]]


def blank(text: str) -> str:
    """As many blanks and line ends as a text has, so that places after it stay."""
    return "".join(char if char == "\n" else " " * len(char.encode()) for char in text)


@dataclass(frozen=True, slots=True)
class FieldName:
    """`AS total` behind an argument of a call.

    call: where the call's name starts, in characters. argument: its place. start, end: of it all.
    """

    call: int
    argument: int
    name: str
    start: int
    end: int


def field_names(tokens: Sequence[Token]) -> Iterator[FieldName]:
    """The names that AS gives to fields of calls, which SQL does not have."""
    for at in range(len(tokens) - 1):
        is_call = tokens[at].is_name and tokens[at].name.lower() in ours.FUNCTIONS
        if is_call and tokens[at + 1].text == "(":
            yield from _names_in(tokens, at)


def _names_in(tokens: Sequence[Token], call: int) -> Iterator[FieldName]:
    depth = argument = 0
    last = closing(tokens, call + 1)
    for at in range(call + 1, last):
        depth += step(tokens[at])
        argument += tokens[at].text == "," and depth == 1
        if tokens[at].word == "AS" and depth == 1 and at + 2 <= last:
            ends = tokens[at + 2].text == "," or at + 2 == last
            if ends or words(tokens, at + 2, 2) == ["ORDER", "BY"]:
                name = tokens[at + 1]
                yield FieldName(tokens[call].start, argument, name.name, tokens[at].start, name.end)


def without_field_names(sql: str, tokens: Sequence[Token]) -> str:
    """The text with blanks in place of these names."""
    for one in reversed(list(field_names(tokens))):
        sql = sql[: one.start] + blank(sql[one.start : one.end]) + sql[one.end :]
    return sql


def read_path(tokens: Sequence[Token], at: int) -> tuple[tuple[str, ...], int]:
    """The parts of a name with dots at a token, and the place after it."""
    parts: list[str] = []
    while at < len(tokens):
        parts.append(tokens[at].name)
        at += 1
        if at == len(tokens) or tokens[at].text != ".":
            break
        at += 1
    return tuple(parts), at


def numbered(sql: str, tokens: list[Token]) -> tuple[str, list[Token]]:
    """The statement with `$1` for its first `?` and so on, as its parts change their places."""
    marks = [one for one in tokens if one.text == "?" and not sql[one.end : one.end + 1].isdigit()]
    for number, one in reversed(list(enumerate(marks, 1))):
        sql = f"{sql[: one.start]}${number}{sql[one.end :]}"
    return (sql, tokenize(sql)) if marks else (sql, tokens)
