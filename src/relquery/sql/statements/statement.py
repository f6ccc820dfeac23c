"""Reads one statement: what DuckDB runs, what has calls, and what the connection keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from relquery.errors import QueryError, SqlSyntaxError, UnsupportedQueryError
from relquery.sql.host.kept import Definition, Kept, Key
from relquery.sql.read.macros import KNOWN_FUNCTIONS
from relquery.sql.read.source import Source, may_call, read_source, to_sql
from relquery.sql.read.tokens import tokenize
from relquery.sql.statements.expand import Expanded, expand, reads_any
from relquery.sql.statements.heads import Head, read_definition, read_head
from relquery.sql.statements.parameters import Parameters
from relquery.sql.statements.prepared import Prepared, executed, read_prepared
from relquery.sql.statements.texts import Text, blank
from relquery.sql.statements.unnamed import mark_unnamed, without_marks

Effect = Callable[[Kept], None]
"""What a statement changes in what the connection keeps."""


def no_effect(kept: Kept) -> None:
    """Change nothing."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement that DuckDB runs as it is. values: of its parameters."""

    text: Text
    values: dict[str, Any] = field(default_factory=dict)
    effect: Effect = no_effect


@dataclass(frozen=True, slots=True)
class Calling:
    """A statement with calls; its views and macros are written out.

    written: its tree as written, with parameters, views and macros. tree: what runs; names that
    these decide are marked, see statements.unnamed. definitions: what `written` may read.
    variables: those of DuckDB that `tree` reads.
    """

    text: Text
    source: Expanded
    written: exp.Expr
    tree: exp.Expr
    definitions: Mapping[Key, Definition]
    parameters: Parameters
    variables: dict[str, Any]
    effect: Effect = no_effect


@dataclass(frozen=True, slots=True)
class Defined:
    """A view or macro with calls to create. expanded: it and all that it reads, itself last."""

    head: Head
    definition: Definition
    expanded: Expanded


@dataclass(frozen=True, slots=True)
class Keeping:
    """A statement that changes only what the connection keeps.

    defined: a view or macro with calls, to be checked first.
    """

    text: Text
    effect: Effect = no_effect
    defined: Defined | None = None


Statement = Plain | Calling | Keeping


def read_statement(text: Text, kept: Kept, parameters: Parameters) -> Statement:
    """Read one statement. kept: what the connection keeps at its turn. Raises QueryError."""
    found = read_prepared(text.query)
    if found is not None and (found.name in kept.prepared or _is_kept(found.body, kept)):
        return _read_prepared(text, found, kept, parameters)
    if text.kind == "TRANSACTION":
        first = tokenize(text.query)[0].text.upper()
        return Plain(text, effect=_TRANSACTIONS.get(first, no_effect))
    if not _may_ask(text.query, kept):
        return Plain(text, parameters.of(text.parameters))
    head = read_head(text.query)
    if head is not None and text.option is None:
        named = _named_again(text, head, kept)
        if named is not None:
            return named
        if head.is_create and head.kind != "TABLE":
            return _read_create(text, head, kept)
    return _read_query(text, kept, parameters)


def _read_prepared(text: Text, found: Prepared, kept: Kept, parameters: Parameters) -> Statement:
    """PREPARE, EXECUTE or DEALLOCATE of a statement that the connection keeps."""
    if found.verb == "EXECUTE":
        body = executed(kept.prepared[found.name], found)
        given = body if text.option is None else f"EXPLAIN {text.option} {body}"
        return read_statement(replace(text, given=given, query=body), kept, parameters)
    if found.verb == "PREPARE":
        if _asks(found.body, kept):
            read_source(found.body).parse()
        return Keeping(text, lambda kept: kept.prepared.update({found.name: found.body}))
    return Keeping(text, lambda kept: _deallocate(kept, found.name))


def _read_query(text: Text, kept: Kept, parameters: Parameters) -> Statement:
    """A statement that is neither about definitions nor about prepared statements."""
    source, tree = _parsed(text.query)
    if source is None or tree is None:
        return Plain(text, parameters.of(text.parameters))
    if not source.calls and not reads_any(tree, kept.definitions):
        return Plain(text, parameters.of(text.parameters))
    written = tree.copy()
    mark_unnamed(tree, kept.definitions)
    expanded, tree = expand(source, tree, kept.definitions)
    variables = parameters.put(tree)
    if not expanded.calls and not expanded.added:  # its macros were replaced by some without calls
        sql = to_sql(without_marks(tree))
        return Plain(replace(text, given=sql, query=sql))
    return Calling(text, expanded, written, tree, kept.definitions, parameters, variables)


def _read_create(text: Text, head: Head, kept: Kept) -> Statement:
    """CREATE of a view or macro; DuckDB keeps those without calls."""
    plain = Plain(text, effect=lambda kept: kept.forget(head.keys))
    definition, start = read_definition(text.query, head)
    if not _asks(definition.body, kept):
        return plain
    read_source(blank(text.query[:start]) + definition.body).parse()  # errors with their position
    _check_name(head)
    trial = kept.copy()
    trial.define(definition)
    expanded, _ = expand(Source("", ()), _reading(definition), trial.definitions)
    if not expanded.added:
        return plain
    return Keeping(text, lambda kept: kept.define(definition), Defined(head, definition, expanded))


def _check_name(head: Head) -> None:
    if len(head.path) > 1:
        raise UnsupportedQueryError(
            f"{'.'.join(head.path)} has LLM calls, so the connection keeps it, in no schema. "
            f"Leave the schema out: {head.name}."
        )
    if head.kind != "VIEW" and head.name.upper() in KNOWN_FUNCTIONS:
        raise UnsupportedQueryError(
            f"The macro {head.name} has the name of a function. Use another name."
        )


def _reading(definition: Definition) -> exp.Expr:
    """A query that reads a definition, with its parameters as arguments."""
    if definition.kind == "VIEW":
        return exp.select("*").from_(exp.to_table(definition.name))
    arguments = [exp.column(name) for name in definition.names]
    call = exp.Anonymous(this=definition.name, expressions=arguments)
    if definition.kind == "MACRO":
        return exp.select(call)
    return exp.select("*").from_(exp.Table(this=call))


def _named_again(text: Text, head: Head, kept: Kept) -> Statement | None:
    """A statement that creates or drops what has the name of a definition; None for others."""
    views = [("VIEW", head.name.lower())] if head.kind == "TABLE" else []
    known = [key for key in (*head.keys, *views) if key in kept.definitions]
    if not known or len(head.path) > 1:
        return None
    kind = "view" if known[0][0] == "VIEW" else "macro"
    if not head.is_create:
        if head.kind == "TABLE":
            raise QueryError(f"{head.name} is a view. Write DROP VIEW {head.name}.")
        return Keeping(text, lambda kept: kept.forget(known[:1]))
    if head.is_there:
        return Keeping(text)
    if head.kind == "TABLE" or not head.replaces:
        also = f", or replace it: CREATE OR REPLACE {head.kind}" if head.kind != "TABLE" else ""
        raise QueryError(f"The {kind} {head.name} already exists. Use another name{also}.")
    return None


def _parsed(sql: str) -> tuple[Source | None, exp.Expr | None]:
    """A statement and its tree; None without calls if only DuckDB can read it."""
    source = None
    try:
        source = read_source(sql)
        return source, source.parse()
    except SqlSyntaxError:
        if source is None or source.calls:
            raise
        return None, None


def _may_ask(sql: str, kept: Kept) -> bool:
    """Whether a text may have a call or name a definition."""
    lower = sql.lower()
    return may_call(sql) or any(name in lower for _, name in kept.definitions)


def _asks(sql: str, kept: Kept) -> bool:
    """Whether a text has a call or reads a definition."""
    if not sql or not _may_ask(sql, kept):
        return False
    source, tree = _parsed(sql)
    if source is None or tree is None:
        return False
    return bool(source.calls) or reads_any(tree, kept.definitions)


def _is_kept(body: str, kept: Kept) -> bool:
    """Whether a statement is not prepared by DuckDB. body: "" for EXECUTE and DEALLOCATE."""
    return bool(body) and (_asks(body, kept) or kept.prepares(body))


def _deallocate(kept: Kept, name: str) -> None:
    kept.prepared.pop(name, None)


_TRANSACTIONS: dict[str, Effect] = {
    "BEGIN": Kept.begin,
    "START": Kept.begin,
    "COMMIT": Kept.commit,
    "END": Kept.commit,
    "ROLLBACK": Kept.rollback,
    "ABORT": Kept.rollback,
}
