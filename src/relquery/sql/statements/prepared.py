"""PREPARE, EXECUTE and DEALLOCATE of statements with LLM calls, which DuckDB cannot prepare.

PREPARE p AS SELECT LLM('...', a) FROM t WHERE id = $1;  EXECUTE p(7)
=> SELECT LLM('...', a) FROM t WHERE id = (7)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import Token, TokenType

from relquery.errors import QueryError
from relquery.sql.read.tokens import between_commas, tokenize

_VERB = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(PREPARE|EXECUTE|DEALLOCATE)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A PREPARE, EXECUTE or DEALLOCATE statement.

    verb: "PREPARE", "EXECUTE" or "DEALLOCATE". body: what is prepared; "" for the others.
    values: texts of the arguments, by name or by position counted from "1".
    """

    verb: str
    name: str
    body: str
    values: dict[str, str]


def read_prepared(sql: str) -> Prepared | None:
    """Read PREPARE, EXECUTE or DEALLOCATE; None for all else."""
    found = _VERB.match(sql)
    if found is None:
        return None
    verb, rest = found[1].upper(), sql[found.end() :]
    tokens = tokenize(rest)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        return None
    name = tokens[-1 if verb == "DEALLOCATE" else 0].text.lower()
    if verb == "EXECUTE":
        return Prepared(verb, name, "", _arguments(rest, tokens[1:]))
    if verb == "DEALLOCATE":
        return Prepared(verb, name, "", {})
    start = next((t.end + 1 for t in tokens if t.token_type == TokenType.ALIAS), len(rest))
    return Prepared(verb, name, rest[start : tokens[-1].end + 1], {})


def executed(body: str, prepared: Prepared) -> str:
    """A prepared statement with its parameters filled in. Raises QueryError on a mismatch."""
    tokens = tokenize(body)
    parts, end, unnamed, used = [], 0, 0, set()
    for at, token in enumerate(tokens):
        if token.token_type == TokenType.PLACEHOLDER:
            unnamed += 1
            name, last = str(unnamed), token
        elif token.token_type == TokenType.PARAMETER and at + 1 < len(tokens):
            last = tokens[at + 1]
            name = last.text.lower()
        else:
            continue
        if name not in prepared.values:
            raise QueryError(
                f"EXECUTE {prepared.name} has no value for the parameter ${name}. "
                f"Values given: {', '.join(prepared.values) or 'none'}."
            )
        used.add(name)
        parts += [body[end : token.start], f"({prepared.values[name]})"]
        end = last.end + 1
    if unused := [name for name in prepared.values if name not in used]:
        raise QueryError(
            f"EXECUTE {prepared.name} gives a value for {', '.join(unused)}, but the prepared "
            "statement has no such parameter. Leave the value out."
        )
    return "".join([*parts, body[end:]])


def _arguments(sql: str, tokens: list[Token]) -> dict[str, str]:
    """The texts of the arguments in EXECUTE name(...)."""
    values: dict[str, str] = {}
    for number, part in enumerate(between_commas(tokens[1:-1]), 1):
        named = len(part) > 2 and part[1].token_type in (TokenType.COLON_EQ, TokenType.FARROW)
        value = part[2:] if named else part
        name = part[0].text.lower() if named else str(number)
        values[name] = sql[value[0].start : value[-1].end + 1]
    return values
