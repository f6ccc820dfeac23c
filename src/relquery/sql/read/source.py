"""The text of a query: where its LLM calls are, and the tree that sqlglot parses from it.

Every call gets a number before parsing (`LLM(` becomes `_rq_llm_3(`). So a node of the tree knows
its own text, and the names of result columns can be taken from the original text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.errors import from_sqlglot

DIALECT = "duckdb"
# Metadata of an expression that replaced a name: the name, which the model sees.
FIELD_NAME = "field_name"
# Metadata of a call: which of its fields are written as MODULE(field), by their place.
MODULES = "modules"
_MODULE = "MODULE"
_CALL_NAME = re.compile(rf"{ours.CALL}(\d+)")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
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
_ANY_CASE = re.compile(rf"{ours.CALL}\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CallText:
    """The position of one call: its name is from `name` to `opening`; `end` is after its `)`."""

    name: int
    opening: int
    end: int


@dataclass(frozen=True, slots=True)
class Source:
    """One statement and its calls, in the order of the text."""

    sql: str
    calls: tuple[CallText, ...]

    def text(self, index: int) -> str:
        """Call `index` as written, with its name in lower case like DuckDB's function names."""
        call = self.calls[index]
        return "llm" + self.sql[call.opening : call.end]

    def parse(self) -> exp.Expression:
        """The tree with numbered calls; fields that are modules are noted in `MODULES`.

        Raises SqlSyntaxError, and QueryError for a module that is no field.
        """
        sql = self._spliced(
            (call.name, call.opening, f"{ours.CALL}{index}")
            for index, call in enumerate(self.calls)
        )
        try:
            tree = sqlglot.parse_one(sql, dialect=DIALECT, error_level=ErrorLevel.IMMEDIATE)
        except (ParseError, TokenError) as error:
            raise from_sqlglot(_as_written(self.sql) or error, self.sql) from error
        assert isinstance(tree, exp.Expression)
        for node in list(tree.find_all(exp.Anonymous)):
            if call_number(node) is not None:
                _take_modules(node)
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


def _take_modules(call: exp.Anonymous) -> None:
    """Replace each MODULE(field) of a call by its field."""
    given = [each for each in call.expressions if not isinstance(each, exp.PropertyEQ | exp.Kwarg)]
    modules = []
    for at, argument in enumerate(given):
        if not isinstance(argument, exp.Anonymous) or argument.name.upper() != _MODULE:
            continue
        if at == 0 or len(argument.expressions) != 1:
            raise QueryError(
                f"{to_sql(argument)} must be a field of an LLM call, with one column or expression "
                "in it: LLM('prompt', MODULE(column))."
            )
        argument.replace(argument.expressions[0])
        modules.append(at - 1)
    call.meta[MODULES] = frozenset(modules)


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
    calls = [
        CallText(tokens[at].start, tokens[at + 1].start, tokens[_closing(tokens, at + 1)].end + 1)
        for at in starts
    ]
    return Source(sql[: tokens[-1].end + 1] if tokens else sql, tuple(calls))


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
        and token.text.lower() == "llm"
        and tokens[at + 1].token_type == TokenType.L_PAREN
        and not _is_declared(tokens, at)
        and not _is_with_entry(tokens, at)
    )


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
