"""Tokens of a statement, and which of them belong together."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.duckdb import DuckDB

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


class _Tokenizer(DuckDB.Tokenizer):
    """Also takes apart what follows EXPLAIN, PREPARE and the like."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def tokenize(sql: str) -> list[Token]:
    """The tokens of DuckDB's SQL. Raises TokenError."""
    return _Tokenizer(dialect="duckdb").tokenize(sql)


class UnbalancedError(ValueError):
    """A parenthesis that nothing closes or opens: DuckDB will not parse the text."""


def step(token: Token) -> int:
    """How a token changes the depth of parentheses, brackets and braces: 1, 0 or -1."""
    return (token.token_type in _OPENING) - (token.token_type in _CLOSING)


def closing(tokens: list[Token], opening: int) -> int:
    """Index of the token that closes the parenthesis at `opening`. Raises UnbalancedError."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += step(tokens[at])
        if depth == 0:
            return at
    raise UnbalancedError


def opening(tokens: list[Token], closing: int) -> int:
    """Index of the token that opens the parenthesis closed at `closing`. Raises UnbalancedError."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += step(tokens[at])
        if depth == 0:
            return at
    raise UnbalancedError


def between_commas(tokens: list[Token]) -> list[list[Token]]:
    """The runs of tokens between commas that are in no parenthesis; empty ones are left out."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += step(token)
        if token.token_type == TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]
