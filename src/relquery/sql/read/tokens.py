"""Tokens of a statement and the tree of them, as DuckDB reads both where sqlglot does not."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import sqlglot
from sqlglot import ErrorLevel, Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB

from relquery.sql import names as ours

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


class _Tokenizer(DuckDB.Tokenizer):
    """Also takes apart what follows EXPLAIN, PREPARE and the like."""

    COMMANDS: ClassVar[set[TokenType]] = set()
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        word: kind for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if word != "?::"
    }


# Metadata of what is sorted by: whether NULLS LAST is written, which a setting may differ from.
_NULLS_LAST = "nulls last"


class Reading(DuckDB):
    """DuckDB's dialect, in which `DATE '2024-01-31'::VARCHAR` casts the date, not its text,
    NULLS LAST stays, and so do subscripts."""

    INDEX_OFFSET = 0  # sqlglot counts from 0, but only what it knows for a number: not `l[?]`

    class Tokenizer(DuckDB.Tokenizer):
        # `?::INT` casts a parameter; another dialect has an operator `?::`.
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if word != "?::"
        }

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]
        # `JSON '[1, 2]'` is a cast, which keeps the text.
        TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {
            kind: parser
            for kind, parser in DuckDB.Parser.TYPE_LITERAL_PARSERS.items()
            if kind is not exp.DataType.Type.JSON
        }
        _after_type = -1  # index of the token after the last type that was read
        _is_literal = False  # whether a literal of a type was just read

        def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
            """A node that does not record where it stands in the text: nothing reads that, and it
            makes copies of trees slower."""
            return super().expression(instance, None, comments)

        def _parse_types(self, *given: Any, **named: Any) -> Any:
            found = super()._parse_types(*given, **named)
            self._after_type = -1 if found is None else self._index
            return found

        def _parse_column_ops(self, this: Any) -> Any:
            if isinstance(this, exp.Literal) and self._after_type == self._index - 1:
                self._is_literal = True
                return this
            return super()._parse_column_ops(this)

        def _parse_type(self, *given: Any, **named: Any) -> Any:
            found, is_literal = super()._parse_type(*given, **named), self._is_literal
            self._is_literal = False
            return super()._parse_column_ops(found) if is_literal else found

        def _parse_lambda(self, *given: Any, **named: Any) -> Any:
            """`f(j -> 'key')` reads from a document: a lambda would use its parameter."""
            index, found = self._index, super()._parse_lambda(*given, **named)
            if not isinstance(found, exp.Lambda) or found.args.get("colon"):
                return found
            names = {each.name.lower() for each in found.expressions}
            used = {each.name.lower() for each in found.this.find_all(exp.Identifier)}
            if names & used:
                return found
            self._retreat(index)
            own: Any = self
            own.LAMBDAS = {
                kind: parser for kind, parser in own.LAMBDAS.items() if kind is not TokenType.ARROW
            }
            try:
                return super()._parse_lambda(*given, **named)
            finally:
                del own.LAMBDAS

        def _parse_primary(self) -> Any:
            """A number as it is written: `.5` has another type than `0.5`."""
            found = super()._parse_primary()
            before = self._tokens[self._index - 2] if self._index > 1 else None
            if (
                type(found) is exp.Literal
                and before is not None
                and before.token_type == TokenType.DOT
                and found.this.startswith("0.")
            ):
                found.set("this", found.this[1:])
            return found

        def _parse_ordered(self, *given: Any, **named: Any) -> Any:
            found = super()._parse_ordered(*given, **named)
            words = [token.text.upper() for token in self._tokens[self._index - 2 : self._index]]
            if found is not None and words == ["NULLS", "LAST"]:
                found.meta[_NULLS_LAST] = True
            return found

    class Generator(DuckDB.Generator):  # type: ignore[misc, valid-type]
        def ordered_sql(self, expression: exp.Ordered) -> str:
            """Also with NULLS LAST, where it was written."""
            sql: str = super().ordered_sql(expression)
            return f"{sql} NULLS LAST" if expression.meta_get(_NULLS_LAST) else sql


def parse(sql: str) -> exp.Expression:
    """The tree of one statement. Raises ParseError and TokenError."""
    tree = sqlglot.parse_one(sql, dialect=Reading, error_level=ErrorLevel.IMMEDIATE)
    tree = tree.transform(_called, copy=False)
    assert isinstance(tree, exp.Expression)
    return tree


def _called(node: exp.Expr) -> exp.Expr:
    """A call in place of such a word, but for a field, which has its name."""
    is_field = isinstance(node.parent, exp.Anonymous) and node.parent.name.startswith(ours.CALL)
    if type(node) not in _CALLED or is_field or any(node.args.values()):
        return node
    return exp.Anonymous(this=_CALLED[type(node)])


# DuckDB takes these words for a column if the SELECT has one of that name, but not their calls.
_CALLED: dict[type[exp.Expr], str] = {
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "get_current_time",
    exp.CurrentTimestamp: "get_current_timestamp",
    exp.Localtime: "current_localtime",
    exp.Localtimestamp: "current_localtimestamp",
    exp.SessionUser: "session_user",
}


# A text, a name or a comment, which stays as it is; or a parameter that a sign follows.
_PARAMETER = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | (?<![\w$])(?P<parameter>\$\w+)(?=[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)


def spaced(sql: str) -> str:
    """A blank behind each parameter, as sqlglot takes `$1,$` for the beginning of a text."""
    if sql.count("$") < 2:
        return sql
    return _PARAMETER.sub(lambda one: f"{one[0]} " if one["parameter"] else one[0], sql)


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
