"""CREATE and DROP of views and macros; PREPARE, EXECUTE and DEALLOCATE.

CREATE OR REPLACE TEMP VIEW v(a, b) AS SELECT ...  =>  the name v, columns a and b, the query

PREPARE p AS SELECT LLM('...', a) FROM t WHERE id = $1;  EXECUTE p(7)
=> SELECT LLM('...', a) FROM t WHERE id = (7)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.host.kept import Definition, Key, Kind
from relquery.sql.parser.tokens import (
    Token,
    between_commas,
    closing,
    read_path,
    tokenize,
    words,
)

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
    tokens = _tokens(sql)
    if words(tokens, 0, 1) not in (["CREATE"], ["DROP"]):
        return None
    at, is_create = 1, tokens[0].word == "CREATE"
    replaces = words(tokens, at, 2) == ["OR", "REPLACE"]
    at += 2 * replaces
    temporary = words(tokens, at, 1) in (["TEMP"], ["TEMPORARY"])
    at += temporary
    kind = _KINDS.get("".join(words(tokens, at, 1)))
    if kind is None:
        return None
    at += 1
    if kind == "MACRO" and not is_create and words(tokens, at, 1) == ["TABLE"]:
        kind, at = "TABLE MACRO", at + 1
    condition = ["IF", "NOT", "EXISTS"] if is_create else ["IF", "EXISTS"]
    is_there = words(tokens, at, len(condition)) == condition
    at += len(condition) * is_there
    path, at = read_path(tokens, at)
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
    if tokens and tokens[0].text == "(":
        last = closing(tokens, 0)
        for part in between_commas(tokens[1:last]):
            names.append(part[0])
            if len(part) > 2 and part[1].text == ":=":
                defaults[part[0].name.lower()] = sql[part[2].start : part[-1].end]
            elif len(part) > 1:
                raise UnsupportedQueryError(
                    f"The parameter {part[0].name} of the macro {head.name} has a type, which a "
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
    start, end = body[0].start, body[-1].end
    listing = tuple(name.name for name in names)
    return Definition(head.keys[0][0], head.name, listing, defaults, sql[start:end]), start


def _is_table_macro(head: Head) -> bool:
    if head.kind != "MACRO" or not head.rest or head.rest[0].text != "(":
        return False
    return words(head.rest, closing(head.rest, 0) + 1, 2) == ["AS", "TABLE"]


def _tokens(sql: str) -> list[Token]:
    tokens = tokenize(sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    return tokens


@dataclass(frozen=True, slots=True)
class Prepared:
    """A PREPARE, EXECUTE or DEALLOCATE statement.

    body: what is prepared; "" for the others. values: texts of the arguments, by name or by
    position counted from "1".
    """

    verb: str
    name: str
    body: str
    values: dict[str, str]


def read_prepared(sql: str) -> Prepared | None:
    """Read PREPARE, EXECUTE or DEALLOCATE; None for all else."""
    tokens = _tokens(sql)
    verb = "".join(words(tokens, 0, 1))
    if verb not in ("PREPARE", "EXECUTE", "DEALLOCATE") or len(tokens) < 2:
        return None
    name = tokens[-1 if verb == "DEALLOCATE" else 1].name.lower()
    if verb == "EXECUTE":
        return Prepared(verb, name, "", _arguments(sql, tokens[2:]))
    if verb == "DEALLOCATE":
        return Prepared(verb, name, "", {})
    start = next((one.end for one in tokens if one.word == "AS"), len(sql))
    return Prepared(verb, name, sql[start : tokens[-1].end], {})


def executed(body: str, prepared: Prepared) -> str:
    """A prepared statement with its parameters filled in. Raises QueryError on a mismatch."""
    tokens = tokenize(body)
    parts, end, unnamed, used = [], 0, 0, set()
    for at, token in enumerate(tokens):
        if token.text == "?":
            unnamed += 1
            name, last = str(unnamed), token
        elif token.text == "$" and at + 1 < len(tokens):
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
        end = last.end
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
        named = len(part) > 2 and part[1].text in (":=", "=>")
        value = part[2:] if named else part
        name = part[0].name.lower() if named else str(number)
        values[name] = sql[value[0].start : value[-1].end]
    return values
