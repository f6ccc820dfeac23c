"""Kinds of statements: what DuckDB runs, what has calls, and what the connection keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import asking_in
from relquery.sql.binder.definitions import (
    Definitions,
    asks,
    definition_query,
    parsed,
    read,
    written_out,
)
from relquery.sql.host.catalog import Definition, KeptDefinitions
from relquery.sql.parser.parameters import Parameters
from relquery.sql.parser.parse import NoTreeError
from relquery.sql.parser.shell import Shell, read_shell
from relquery.sql.parser.statements import Head, StatementText, read_definition, read_head
from relquery.sql.parser.tokens import blank, tokenize
from relquery.sql.parser.tree import Query

Effect = Callable[[KeptDefinitions], object]
"""What a statement changes in what the connection keeps."""


def no_effect(kept: KeptDefinitions) -> None:
    """Change nothing."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement that DuckDB runs as it is. values: of its parameters."""

    text: StatementText
    values: dict[str, Any] = field(default_factory=dict)
    effect: Effect = no_effect


@dataclass(frozen=True, slots=True)
class Calling:
    """A statement with calls.

    tree: its query as written, with functions, parameters, views and macros. definitions: what it
    may read. values: of its parameters, by name; objects: why DuckDB cannot take some.
    """

    text: StatementText
    shell: Shell
    tree: Query
    definitions: Definitions
    values: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)
    effect: Effect = no_effect

    def written_out(self) -> Query:
        """A copy of its query with its views and macros written out."""
        return written_out(self.tree.copy(), self.definitions)


@dataclass(frozen=True, slots=True)
class Defined:
    """A view or macro with calls to create. body: its query, or a SELECT of its expression, as a
    statement."""

    head: Head
    definition: Definition
    body: Calling


@dataclass(frozen=True, slots=True)
class Keeping:
    """A statement that changes only what the connection keeps.

    defined: a view or macro with calls, to be checked first.
    """

    text: StatementText
    effect: Effect = no_effect
    defined: Defined | None = None


Statement = Plain | Calling | Keeping


def read_statement(text: StatementText, kept: KeptDefinitions, parameters: Parameters) -> Statement:
    """Read one statement. kept: what the connection keeps at its turn. Raises QueryError."""
    if text.kind == "PREPARE" and kept.searches(text.query):
        # DuckDB might compute the values when it prepares it, and keep them though tables change.
        raise UnsupportedQueryError(f"PREPARE with a search is not supported. {_PARAMETERS}")
    if not _named(text.query, kept):
        return Plain(text, parameters.plain(text))
    head = read_head(text.query)
    if head is not None and text.option is None:
        named = _named_again(text, head, kept)
        if named is not None:
            return named
        if head.is_create and head.kind != "TABLE":
            return _read_create(text, head, kept)
    return _read_query(text, kept, parameters)


def _read_query(text: StatementText, kept: KeptDefinitions, parameters: Parameters) -> Statement:
    """A statement that creates and drops no view or macro."""
    shell = read_shell(text.query)
    _check_written(shell, kept)
    if shell.fills and _named(shell.tail, kept) & ours.FUNCTIONS:
        raise UnsupportedQueryError(
            "An LLM call is in RETURNING or ON CONFLICT, where it would be asked while rows are "
            "written. Write the answers to a table first."
        )
    if shell.kind == "OTHER":
        if _named(text.query, kept):
            raise UnsupportedQueryError(
                f"{shell.word} with LLM calls is not supported. "
                f"{_REMEDIES.get(shell.word, _TO_TABLE)}"
            )
        return Plain(text, parameters.plain(text))
    try:
        tree = read(shell, kept.definitions)
    except NoTreeError:
        if not _named(text.query, kept) & ours.FUNCTIONS:
            return Plain(text, parameters.plain(text))
        raise UnsupportedQueryError(
            f"An LLM call is in a {shell.word or 'statement'} that DuckDB gives no tree of. List "
            f"the values of a PIVOT: ON a IN ('x', 'y'). Or do so: {_TO_TABLE}"
        ) from None
    if not asks(tree, kept.definitions):
        return Plain(text, parameters.plain(text))
    values, objects = parameters.of(text), parameters.objects_of(text)
    return Calling(text, shell, tree, kept.definitions, values, objects)


def _check_written(shell: Shell, kept: KeptDefinitions) -> None:
    """Raises QueryError for a statement that writes to a view with calls."""
    name = shell.path[-1] if shell.path else ""
    view = kept.definitions.get(("VIEW", name.lower()))
    if view is not None and shell.kind != "CREATE TABLE":
        raise QueryError(f"{view.name} is a view. Only tables can be written to.")


def _read_create(text: StatementText, head: Head, kept: KeptDefinitions) -> Statement:
    """CREATE of a view or macro; DuckDB keeps those without calls."""
    plain = Plain(text, effect=lambda kept: kept.forget(head.key))
    definition, start, odd = read_definition(text.query, head)
    select = "SELECT " if definition.kind == "MACRO" else ""
    if not (_named(definition.body, kept) if odd else _asks(f"{select}{definition.body}", kept)):
        return plain
    if odd:
        raise UnsupportedQueryError(f"The macro {head.name}, which has LLM calls, {odd}")
    if len(head.path) > 1:
        raise UnsupportedQueryError(
            f"{'.'.join(head.path)} has LLM calls, so the connection keeps it, in no schema. "
            f"Leave the schema out: {head.name}."
        )
    # The places of errors are those in the statement.
    before = blank(text.query[:start])
    query = before[: len(before) - len(select)] + select + definition.body
    parsed(query)
    definitions = {**kept.definitions, definition.key: definition}
    tree = definition_query(definition, definitions)
    body = Calling(text, Shell("QUERY", definition.body), tree, definitions)
    written = body.written_out()
    if next(asking_in(written), None) is None:
        return plain
    if definition.kind == "MACRO" and len(list(written.find_all(Query))) > 1:
        raise UnsupportedQueryError(
            f"The macro {head.name} has LLM calls and a subquery, which does not go together. "
            "Create a view, and filter its rows where it is read."
        )
    defined = Defined(head, definition, body)
    return Keeping(text, lambda kept: kept.define(definition), defined)


def _named_again(text: StatementText, head: Head, kept: KeptDefinitions) -> Statement | None:
    """A statement that creates or drops what has the name of a definition; None for others."""
    if head.key not in kept.definitions or len(head.path) > 1:
        return None
    kind = head.key[0].lower()
    if not head.is_create:
        if head.kind == "TABLE":
            raise QueryError(f"{head.name} is a view. Write DROP VIEW {head.name}.")
        return Keeping(text, lambda kept: kept.forget(head.key))
    if head.is_there:
        return Keeping(text)
    if head.kind == "TABLE" or not head.replaces:
        also = f", or replace it: CREATE OR REPLACE {head.kind}" if head.kind != "TABLE" else ""
        raise QueryError(f"The {kind} {head.name} already exists. Use another name{also}.")
    return None


def _named(sql: str, kept: KeptDefinitions) -> frozenset[str]:
    """The words of a text that name a function of ours, or a view or macro with calls."""
    names, lower = ours.FUNCTIONS | {name for _, name in kept.definitions}, sql.lower()
    if not any(name in lower for name in names):
        return frozenset()
    return names & {token.name.lower() for token in tokenize(sql) if token.is_name}


def _asks(query: str, kept: KeptDefinitions) -> bool:
    """Whether a query has a call or reads a definition."""
    return bool(_named(query, kept)) and asks(parsed(query), kept.definitions)


_PARAMETERS = "Give its values beside it: con.sql(query, [7, 'a']) for $1 and $2."
_TO_TABLE = "Write the answers to a table first: CREATE TABLE answers AS SELECT ..., LLM(...)."
_REMEDIES = {
    "CREATE TABLE WITH NO DATA": "Write LIMIT 0 in its place, which asks nothing.",
    "PREPARE": _PARAMETERS,
    "CREATE VIEW": "It asks nothing by itself. Explain a query that reads the view.",
    "CREATE MACRO": "It asks nothing by itself. Explain a query that uses the macro.",
    "CREATE FUNCTION": "It asks nothing by itself. Explain a query that uses the macro.",
}
