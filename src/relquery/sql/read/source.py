"""The text of a query: where its LLM calls are, and the tree that sqlglot parses from it.

Every call gets a number before parsing (`LLM(` becomes `_rq_llm_3(`). So a node of the tree knows
its own text, and the names of result columns can be taken from the original text. Names of fields
(`LLM('...', price * 2 AS total)`) are taken out before parsing, since SQL has no such names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from relquery.errors import SqlSyntaxError
from relquery.sql import names as ours
from relquery.sql.host.errors import from_sqlglot

DIALECT = "duckdb"
# Metadata of a node that a query's parameter became: its value, as Python has it.
VALUE = "value"
# Metadata of an expression that replaced a name: the name, which the model sees.
FIELD_NAME = "field_name"
# Metadata of a call: the function as written, in lower case, e.g. "ai_filter".
FUNCTION = "function"
_CALL_NAME = re.compile(rf"{ours.CALL}(\d+)")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
# Tokens before a schema's function, an alias with columns, or a table or macro to create.
_BEFORE_OTHERS = (
    TokenType.DOT,
    TokenType.ALIAS,
    TokenType.INTO,
    TokenType.TABLE,
    TokenType.VIEW,
    TokenType.FUNCTION,
    *_NAMES,
)
_WORDS = ("IF", "ZONE")  # names to the tokenizer, but an expression may follow them
_MAYBE_A_CALL = re.compile(rf"\b(?:{'|'.join(sorted(ours.FUNCTIONS))})\b", re.IGNORECASE)
_ANY_CASE = re.compile(rf"{ours.CALL}\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Name:
    """The name given to an argument: `AS total` from `start` to `end`."""

    argument: int
    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CallText:
    """The position of one call: its name is from `name` to `opening`; `end` is after its `)`, or
    after that of its FILTER.

    function: its name in lower case. names: those given to its arguments.
    """

    name: int
    opening: int
    end: int
    function: str
    names: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One statement and its calls, in the order of the text."""

    sql: str
    calls: tuple[CallText, ...]

    def text(self, index: int) -> str:
        """Call `index` as written, with its name in lower case like DuckDB's function names."""
        call = self.calls[index]
        return call.function + self.sql[call.opening : call.end]

    def parse(self) -> exp.Expression:
        """The tree with numbered calls. Raises SqlSyntaxError."""
        numbered = [
            (call.name, call.opening, f"{ours.CALL}{index}")
            for index, call in enumerate(self.calls)
        ]
        unnamed = [(name.start, name.end, "") for call in self.calls for name in call.names]
        sql = self._spliced(sorted(numbered + unnamed))
        try:
            tree = sqlglot.parse_one(sql, dialect=DIALECT, error_level=ErrorLevel.IMMEDIATE)
        except (ParseError, TokenError) as error:
            raise from_sqlglot(_as_written(self.sql) or error, self.sql) from error
        assert isinstance(tree, exp.Expression)
        for node in list(tree.find_all(exp.Anonymous)):
            if (number := call_number(node)) is not None:
                node.meta[FUNCTION] = self.calls[number].function
                for name in self.calls[number].names:
                    node.expressions[name.argument].meta[FIELD_NAME] = name.name
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

    def _spliced(self, replacements: Iterable[tuple[int, int, str]]) -> str:
        parts = []
        at = 0
        for start, end, text in replacements:
            parts += [self.sql[at:start], text]
            at = end
        return "".join([*parts, self.sql[at:]])


def _as_written(sql: str) -> ParseError | TokenError | None:
    """The parse error for the text without call numbers, so its positions match the user's text."""
    try:
        sqlglot.parse_one(sql, dialect=DIALECT, error_level=ErrorLevel.IMMEDIATE)
    except (ParseError, TokenError) as error:
        return error
    return None


def read_source(sql: str) -> Source:
    """Find the LLM calls of a statement that DuckDB parses; drops semicolons at the end."""
    try:
        tokens = sqlglot.tokenize(sql, read=DIALECT)
    except TokenError as error:
        raise from_sqlglot(error, sql) from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    starts = [at for at in range(len(tokens) - 1) if _starts_call(tokens, at)]
    calls = tuple(_call_text(tokens, at) for at in starts)
    return Source(sql[: tokens[-1].end + 1] if tokens else sql, calls)


def may_call(sql: str) -> bool:
    """Whether a text may have a call; it may also have a column called `llm`."""
    return _MAYBE_A_CALL.search(sql) is not None


def without_names(sql: str) -> str:
    """The text as DuckDB can parse it: blanks where fields of calls are named."""
    if not may_call(sql):
        return sql
    try:
        source = read_source(sql)
    except (SqlSyntaxError, AssertionError):  # not parsed yet; DuckDB will say what is wrong
        return sql
    for call in source.calls:
        for name in call.names:
            blank = re.sub(r"[^\n]", " ", sql[name.start : name.end])
            sql = sql[: name.start] + blank + sql[name.end :]
    return sql


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
    """An expression for people to read: calls and columns have their own names again."""
    return unnumbered(node.transform(_as_written_before))


def unnumbered(node: exp.Expr) -> str:
    """An expression as DuckDB would read it if it had LLM; equal calls have equal texts."""
    return _ANY_CASE.sub("LLM", to_sql(node))


def _as_written_before(node: exp.Expr) -> exp.Expr:
    if (
        isinstance(node, exp.Column)
        and node.name.startswith(ours.PREFIX)
        and FIELD_NAME in node.meta
    ):
        return exp.Var(this=node.meta[FIELD_NAME])
    if isinstance(node, exp.Column) and node.text("db") == ours.OUTER:
        return exp.column(node.this.copy(), table=node.args["table"].copy())
    return node


def _starts_call(tokens: list[Token], at: int) -> bool:
    """Whether a token is the name of a call, not of something else called `llm`."""
    token = tokens[at]
    return (
        token.token_type in _NAMES
        and token.text.lower() in ours.FUNCTIONS
        and tokens[at + 1].token_type == TokenType.L_PAREN
        and not _is_declared(tokens, at)
        and not _is_with_entry(tokens, at)
    )


def _call_text(tokens: list[Token], at: int) -> CallText:
    """The position of the call whose name is token `at`."""
    closing, function = _closing(tokens, at + 1), tokens[at].text.lower()
    names = tuple(_names_in(tokens, at + 1, closing))
    end = closing
    words = [token.text.upper() for token in tokens[closing + 1 : closing + 3]]
    if function in ours.AGGREGATES and words == ["FILTER", "("]:
        end = _closing(tokens, closing + 2)
    return CallText(tokens[at].start, tokens[at + 1].start, tokens[end].end + 1, function, names)


def _names_in(tokens: list[Token], opening: int, closing: int) -> Iterator[Name]:
    """The names given to arguments: `AS total` before a comma or the end."""
    depth = argument = 0
    for at in range(opening, closing):
        kind = tokens[at].token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        argument += kind == TokenType.COMMA and depth == 1
        if kind == TokenType.ALIAS and depth == 1 and at + 2 <= closing:
            after = tokens[at + 2].token_type
            if after == TokenType.COMMA or at + 2 == closing:
                name = tokens[at + 1]
                yield Name(argument, name.text, tokens[at].start, name.end + 1)


def _is_declared(tokens: list[Token], at: int) -> bool:
    """Whether a name belongs to an alias with columns, a table, or a function in a schema."""
    if not at:
        return False
    before = tokens[at - 1]
    if before.token_type == TokenType.R_PAREN:  # `(SELECT ...) llm(a)`
        opening = _opening(tokens, at - 1)
        words = [token.text.upper() for token in tokens[max(0, opening - 2) : opening]]
        return words != ["DISTINCT", "ON"]
    if before.token_type == TokenType.EXISTS:  # CREATE TABLE IF NOT EXISTS llm(a INTEGER)
        return at > 2 and tokens[at - 2].token_type == TokenType.NOT and _is_if(tokens[at - 3])
    return before.token_type in _BEFORE_OTHERS and before.text.upper() not in _WORDS


def _is_if(token: Token) -> bool:
    return token.text.upper() == "IF"


def _is_with_entry(tokens: list[Token], at: int) -> bool:
    """Whether a name is a WITH entry: `llm(a, b) AS (`, `llm(a, b) AS MATERIALIZED (`."""
    before = tokens[at - 1].token_type if at else None
    if before not in (TokenType.WITH, TokenType.RECURSIVE, TokenType.COMMA):
        return False
    after = tokens[_closing(tokens, at + 1) + 1 :][:4]
    words = [token.text.upper() for token in after]
    if words[:1] != ["AS"]:
        return False
    return "(" in words[1:2] or "MATERIALIZED" in words[1:3]


def _opening(tokens: list[Token], closing: int) -> int:
    """Index of the token that opens the parenthesis closed at `closing`."""
    depth = 0
    for at in range(closing, -1, -1):
        kind = tokens[at].token_type
        depth += (kind == TokenType.R_PAREN) - (kind == TokenType.L_PAREN)
        if depth == 0:
            return at
    raise AssertionError("DuckDB parsed a parenthesis that nothing opens")


def _closing(tokens: list[Token], opening: int) -> int:
    """Index of the token that closes the parenthesis at `opening`."""
    depth = 0
    for at in range(opening, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if depth == 0:
            return at
    raise AssertionError("DuckDB parsed a call whose parenthesis does not close")
