"""The text of a query: where its LLM calls stand, and the tree that sqlglot makes of it.

Every call is given a number before parsing (`LLM(` becomes `_rq_llm_3(`), so that a node of the
tree knows its own text and names of result columns can be taken from the text as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from relquery.sql.foreign import from_sqlglot

DIALECT = "duckdb"
CALL = "_rq_llm_"
_CALL_NAME = re.compile(rf"{CALL}(\d+)")
_ANY_CASE = re.compile(rf"{CALL}\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CallText:
    """The place of one call: `name` up to `opening` is its name, `end` follows its `)`."""

    name: int
    opening: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """One statement and its calls in the order in which they are written."""

    sql: str
    calls: tuple[CallText, ...]

    def text(self, index: int) -> str:
        """Call `index` as written, its name in lower case as DuckDB writes function names."""
        call = self.calls[index]
        return "llm" + self.sql[call.opening : call.end]

    def parse(self) -> exp.Expression:
        """The tree, calls numbered. Raises SqlSyntaxError."""
        sql = self._spliced(
            (call.name, call.opening, f"{CALL}{index}") for index, call in enumerate(self.calls)
        )
        try:
            tree = sqlglot.parse_one(sql, dialect=DIALECT, error_level=ErrorLevel.IMMEDIATE)
        except (ParseError, TokenError) as error:
            raise from_sqlglot(_as_written(self.sql) or error, self.sql) from error
        assert isinstance(tree, exp.Expression)
        return tree

    def with_calls(self, replacement: Callable[[int], str]) -> str:
        """The text with every outermost call replaced."""
        outermost = []
        end = 0
        for index, call in enumerate(self.calls):
            if call.name >= end:
                outermost.append((call.name, call.end, replacement(index)))
                end = call.end
        return self._spliced(outermost)

    def _spliced(self, replacements: object) -> str:
        parts = []
        at = 0
        for start, end, text in replacements:  # type: ignore[attr-defined]
            parts += [self.sql[at:start], text]
            at = end
        return "".join([*parts, self.sql[at:]])


def _as_written(sql: str) -> ParseError | TokenError | None:
    """The error of a text whose calls have no numbers yet, so that its places are the user's."""
    try:
        sqlglot.parse_one(sql, dialect=DIALECT, error_level=ErrorLevel.IMMEDIATE)
    except (ParseError, TokenError) as error:
        return error
    return None


def read_source(sql: str) -> Source:
    """Find the LLM calls of a statement that DuckDB parses."""
    try:
        tokens = sqlglot.tokenize(sql, read=DIALECT)
    except TokenError as error:
        raise from_sqlglot(error, sql) from error
    starts = [at for at in range(len(tokens) - 1) if _starts_call(tokens, at)]
    calls = [
        CallText(tokens[at].start, tokens[at + 1].start, _end(tokens, at + 1)) for at in starts
    ]
    return Source(sql, tuple(calls))


def call_number(node: exp.Expr) -> int | None:
    """The number of an LLM call, None for any other node."""
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return None
    found = _CALL_NAME.fullmatch(node.this)
    return int(found[1]) if found else None


def to_sql(node: exp.Expr) -> str:
    """An expression as DuckDB reads it."""
    return node.sql(dialect=DIALECT, comments=False)


def readable(node: exp.Expr) -> str:
    """An expression for people: calls under their own name again."""
    return _ANY_CASE.sub("LLM", to_sql(node))


def _starts_call(tokens: list[Token], at: int) -> bool:
    token, before = tokens[at], tokens[at - 1] if at else None
    return (
        token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
        and token.text.lower() == "llm"
        and tokens[at + 1].token_type == TokenType.L_PAREN
        and (before is None or before.token_type != TokenType.DOT)
    )


def _end(tokens: list[Token], opening: int) -> int:
    depth = 0
    for token in tokens[opening:]:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return token.end + 1
    raise AssertionError("DuckDB parsed a call whose parenthesis does not close")
