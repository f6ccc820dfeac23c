"""Where the LLM calls of a statement are, found among its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType

from relquery.sql import names as ours
from relquery.sql.read.tokens import closing, opening, step

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

    function: its name in lower case. names: those given to its arguments. distinct: where the word
    DISTINCT is before its arguments.
    """

    name: int
    opening: int
    end: int
    function: str
    names: tuple[Name, ...] = ()
    distinct: tuple[int, int] | None = None


def locate(tokens: list[Token]) -> tuple[CallText, ...]:
    """The calls, in the order of the text. Raises UnbalancedError for text that is not SQL."""
    starts = (at for at in range(len(tokens) - 1) if _starts_call(tokens, at))
    return tuple(_call_text(tokens, at) for at in starts)


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
    last, function = closing(tokens, at + 1), tokens[at].text.lower()
    names = tuple(_names_in(tokens, at + 1, last))
    end = last
    words = [token.text.upper() for token in tokens[last + 1 : last + 3]]
    if function in ours.AGGREGATES and words == ["FILTER", "("]:
        end = closing(tokens, last + 2)
    first = tokens[at + 2]
    is_distinct = function in ours.AGGREGATES and first.token_type == TokenType.DISTINCT
    return CallText(
        tokens[at].start,
        tokens[at + 1].start,
        tokens[end].end + 1,
        function,
        names,
        (first.start, first.end + 1) if is_distinct else None,
    )


def _names_in(tokens: list[Token], first: int, last: int) -> Iterator[Name]:
    """The names given to arguments: `AS total` before a comma, ORDER BY or the end."""
    depth = argument = 0
    for at in range(first, last):
        kind = tokens[at].token_type
        depth += step(tokens[at])
        argument += kind == TokenType.COMMA and depth == 1
        if kind == TokenType.ALIAS and depth == 1 and at + 2 <= last:
            after = tokens[at + 2].token_type
            if after in (TokenType.COMMA, TokenType.ORDER_BY) or at + 2 == last:
                name = tokens[at + 1]
                yield Name(argument, name.text, tokens[at].start, name.end + 1)


def _is_declared(tokens: list[Token], at: int) -> bool:
    """Whether a name belongs to an alias with columns, a table, or a function in a schema."""
    if not at:
        return False
    before = tokens[at - 1]
    if before.token_type == TokenType.R_PAREN:  # `(SELECT ...) llm(a)`
        start = opening(tokens, at - 1)
        words = [token.text.upper() for token in tokens[max(0, start - 2) : start]]
        return words != ["DISTINCT", "ON"]
    if before.token_type == TokenType.EXISTS:  # CREATE TABLE IF NOT EXISTS llm(a INTEGER)
        return at > 2 and tokens[at - 2].token_type == TokenType.NOT and _is_if(tokens[at - 3])
    if before.token_type == TokenType.ALIAS and _is_macro(tokens, at):
        return False  # `CREATE MACRO m(x) AS llm(...)`
    return before.token_type in _BEFORE_OTHERS and before.text.upper() not in _WORDS


def _is_macro(tokens: list[Token], at: int) -> bool:
    """Whether token `at` is in a statement that creates a macro."""
    ends = [place for place in range(at) if tokens[place].token_type == TokenType.SEMICOLON]
    first = ends[-1] + 1 if ends else 0
    words = [token.text.upper() for token in tokens[first : first + 5]]
    return words[:1] == ["CREATE"] and not {"MACRO", "FUNCTION"}.isdisjoint(words)


def _is_if(token: Token) -> bool:
    return token.text.upper() == "IF"


def _is_with_entry(tokens: list[Token], at: int) -> bool:
    """Whether a name is a WITH entry: `llm(a, b) AS (`, `llm(a, b) AS MATERIALIZED (`."""
    before = tokens[at - 1].token_type if at else None
    if before not in (TokenType.WITH, TokenType.RECURSIVE, TokenType.COMMA):
        return False
    after = tokens[closing(tokens, at + 1) + 1 :][:4]
    words = [token.text.upper() for token in after]
    if words[:1] != ["AS"]:
        return False
    return "(" in words[1:2] or "MATERIALIZED" in words[1:3]
