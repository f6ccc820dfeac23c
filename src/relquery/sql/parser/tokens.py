"""The tokens of a text, as DuckDB cuts it, and a place among those of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

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
    tokens = duckdb.tokenize(sql)
    starts = [start for start, _ in tokens]
    if not sql.isascii():  # DuckDB counts in bytes
        places = [index for index, char in enumerate(sql) for _ in char.encode(errors="replace")]
        starts = [places[start] for start in starts]
    return [
        Token(text, start, start + len(text), kind in _NAMES, kind == _STRING)
        for start, end, (_, kind) in zip(starts, [*starts[1:], len(sql)], tokens, strict=False)
        if kind != _COMMENT and (text := sql[start:end].rstrip())
    ]


def step(token: Token) -> int:
    """How a token changes the depth of parentheses, brackets and braces: 1, 0 or -1."""
    return _DEPTHS.get(token.text, 0)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The place of the token that closes a parenthesis; the last one if nothing does."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += step(tokens[index])
        if depth == 0:
            return index
    return len(tokens) - 1


def on_top(tokens: Sequence[Token], start: int = 0) -> Iterator[int]:
    """The places of tokens in no parentheses, from one on."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += step(tokens[index])
        if depth == 0 or (depth == 1 and step(tokens[index]) > 0):
            yield index


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


def unnumbered(tokens: Sequence[Token], sql: str) -> list[Token]:
    """The `?` of a statement; `?1` is `$1`."""
    return [
        token
        for token in tokens
        if token.text == "?" and not sql[token.end : token.end + 1].isdigit()
    ]


@dataclass(slots=True)
class Cursor:
    """A place among the tokens of a statement. at: of the token that is next."""

    sql: str
    tokens: Sequence[Token]
    at: int = 0

    @classmethod
    def of(cls, sql: str) -> Cursor:
        """The beginning of a statement, without what is after its last token and semicolons."""
        tokens = tokenize(sql)
        while tokens and tokens[-1].text == ";":
            tokens.pop()
        return cls(sql[: tokens[-1].end] if tokens else sql, tokens)

    def numbered(self) -> Cursor:
        """The statement with `$1` for its first `?` and so on, as its parts change their places."""
        sql, marks = self.sql, unnumbered(self.tokens, self.sql)
        for number, mark in reversed(list(enumerate(marks, 1))):
            sql = f"{sql[: mark.start]}${number}{sql[mark.end :]}"
        return Cursor.of(sql) if marks else self

    def is_at(self, *wanted: str) -> bool:
        """Whether some words come next."""
        return words(self.tokens, self.at, len(wanted)) == list(wanted)

    def take(self, *wanted: str) -> bool:
        """Go past some words if they come next."""
        is_taken = self.is_at(*wanted)
        self.at += is_taken * len(wanted)
        return is_taken

    def path(self) -> tuple[tuple[str, ...], str]:
        """Go past a name with dots. Its parts, and as it is written."""
        start = self.at
        parts, self.at = read_path(self.tokens, start)
        return parts, self.since(start)

    def inside(self) -> Sequence[Token]:
        """Go past parentheses. What is in them."""
        first, last = self.at + 1, closing(self.tokens, self.at)
        self.at = last + 1
        return self.tokens[first:last]

    def since(self, start: int) -> str:
        """What stands from a token up to here."""
        return self.text(self.tokens[start : self.at])

    def text(self, part: Sequence[Token]) -> str:
        """Some tokens as they are written."""
        return self.sql[part[0].start : part[-1].end] if part else ""

    def find(self, *wanted: str) -> int:
        """The place of the first of some keywords, in no parentheses, from here on; or the end."""
        for index in on_top(self.tokens, self.at):
            is_comparison = index and self.tokens[index - 1].word == "DISTINCT"  # IS DISTINCT FROM
            if self.tokens[index].word in wanted and not is_comparison:
                return index
        return len(self.tokens)

    def until(self, *wanted: str) -> str:
        """Go to the first of some keywords. What stands before it."""
        start, self.at = self.at, self.find(*wanted)
        return self.since(start)
