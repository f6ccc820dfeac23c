"""The beginnings of CREATE and DROP statements, as far as they concern views and macros.

CREATE OR REPLACE TEMP VIEW v(a, b) AS SELECT ...  =>  the name v, columns a and b, the query
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import Token, TokenType

from relquery.errors import UnsupportedQueryError
from relquery.sql.host.kept import Definition, Key, Kind
from relquery.sql.read.tokens import between_commas, closing, tokenize

_KINDS = {"VIEW": "VIEW", "MACRO": "MACRO", "FUNCTION": "MACRO", "TABLE": "TABLE"}


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of CREATE or DROP of a table, view or macro.

    is_create: whether it creates. kind: "TABLE", "VIEW", "MACRO" or "TABLE MACRO". is_there: IF
    NOT EXISTS, or IF EXISTS. path: the parts of the name. rest: the tokens after the name.
    """

    is_create: bool
    kind: str
    replaces: bool
    temporary: bool
    is_there: bool
    path: tuple[str, ...]
    rest: tuple[Token, ...]

    @property
    def name(self) -> str:
        """The name without database and schema."""
        return self.path[-1]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all definitions that the name may mean here."""
        kinds: tuple[Kind, ...] = ("VIEW",)
        if self.kind == "TABLE MACRO":
            kinds = ("TABLE MACRO",)
        elif self.kind == "MACRO":
            kinds = ("MACRO",) if self.is_create else ("MACRO", "TABLE MACRO")
        return tuple((kind, self.name.lower()) for kind in kinds)


def read_head(sql: str) -> Head | None:
    """The beginning of a statement that creates or drops a table, view or macro; else None."""
    tokens = tokenize(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    words = [token.text.upper() for token in tokens[:10]]
    if words[:1] not in (["CREATE"], ["DROP"]):
        return None
    at, is_create = 1, words[0] == "CREATE"
    replaces = words[at : at + 2] == ["OR", "REPLACE"]
    at += 2 * replaces
    temporary = words[at : at + 1] in (["TEMP"], ["TEMPORARY"])
    at += temporary
    kind = _KINDS.get(words[at] if at < len(words) else "")
    if kind is None:
        return None
    at += 1
    if kind == "MACRO" and not is_create and words[at : at + 1] == ["TABLE"]:
        kind, at = "TABLE MACRO", at + 1
    condition = ["IF", "NOT", "EXISTS"] if is_create else ["IF", "EXISTS"]
    is_there = words[at : at + len(condition)] == condition
    at += len(condition) * is_there
    path, at = _path(tokens, at)
    if not path:
        return None
    head = Head(is_create, kind, replaces, temporary, is_there, path, tuple(tokens[at:]))
    return replace(head, kind="TABLE MACRO") if is_create and _is_table_macro(head) else head


def read_definition(sql: str, head: Head) -> tuple[Definition, int]:
    """The view or macro that a statement creates, and where its body starts.

    Raises UnsupportedQueryError for a macro with several forms or with types.
    """
    tokens = list(head.rest)
    names: list[Token] = []
    defaults: dict[str, str] = {}
    if tokens and tokens[0].token_type == TokenType.L_PAREN:
        last = closing(tokens, 0)
        for part in between_commas(tokens[1:last]):
            names.append(part[0])
            if len(part) > 2 and part[1].token_type == TokenType.COLON_EQ:
                defaults[part[0].text.lower()] = sql[part[2].start : part[-1].end + 1]
            elif len(part) > 1:
                raise UnsupportedQueryError(
                    f"The parameter {part[0].text} of the macro {head.name} has a type, which a "
                    "macro with LLM calls does not support. Leave the type out, and cast the "
                    "parameter in the body."
                )
        tokens = tokens[last + 1 :]
    body = tokens[2 if head.kind == "TABLE MACRO" else 1 :]
    if head.kind == "MACRO" and len(between_commas(body)) > 1:
        raise UnsupportedQueryError(
            f"The macro {head.name} has several forms, which a macro with LLM calls does not "
            "support. Create a macro of its own for each."
        )
    start, end = body[0].start, body[-1].end + 1
    listing = tuple(name.text for name in names)
    return Definition(head.keys[0][0], head.name, listing, defaults, sql[start:end]), start


def _path(tokens: list[Token], at: int) -> tuple[tuple[str, ...], int]:
    """The parts of a name with dots at a token, and the token after it."""
    parts: list[str] = []
    while at < len(tokens):
        parts.append(tokens[at].text)
        at += 1
        if at == len(tokens) or tokens[at].token_type != TokenType.DOT:
            break
        at += 1
    return tuple(parts), at


def _is_table_macro(head: Head) -> bool:
    if head.kind != "MACRO" or not head.rest or head.rest[0].token_type != TokenType.L_PAREN:
        return False
    after = head.rest[closing(list(head.rest), 0) + 1 :]
    return [token.text.upper() for token in after[:2]] == ["AS", "TABLE"]
