"""Views and macros with stand-ins for their calls, so that DuckDB can describe what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlglot import exp

from relquery.errors import QueryError, RelqueryError
from relquery.prompt import Sampling
from relquery.sql.functions.expand import Expansion
from relquery.sql.host.database import Database
from relquery.sql.host.kept import Definition
from relquery.sql.read.check import column_names, result_names, stubbed
from relquery.sql.read.scopes import context_of
from relquery.sql.read.source import Source, read_source, to_sql
from relquery.sql.statements.expand import Expanded
from relquery.sql.statements.statement import Defined


@contextmanager
def stand_ins(database: Database, expanded: Expanded, defaults: Sampling) -> Iterator[None]:
    """A block in which DuckDB has the views and macros that a statement reads."""
    created: list[Definition] = []
    try:
        for definition, body in expanded.used:
            of_type = typed(body, expanded, database, defaults)
            database.execute(_create("CREATE TEMP", definition, of_type))
            created.append(definition)
        yield
    finally:
        for definition in reversed(created):
            with suppress(RelqueryError):  # an aborted transaction drops them itself
                database.execute(_drop(definition))


def check_defined(database: Database, defined: Defined, defaults: Sampling) -> tuple[str, ...]:
    """Have DuckDB check a view or macro to create, and drop what it replaces.

    Returns the names of a view's columns. Raises QueryError.
    """
    head, definition, expanded = defined.head, defined.definition, defined.expanded
    body = typed(expanded.used[-1][1], expanded, database, defaults)
    inner = Expanded(expanded.sql, expanded.calls, expanded.added, expanded.used[:-1])
    with stand_ins(database, inner, defaults):
        replaces, temporary = " OR REPLACE" * head.replaces, " TEMP" * head.temporary
        # A temporary one would hide it, so nothing temporary may have its name.
        for words in dict.fromkeys((f"CREATE{replaces}{temporary}", "CREATE TEMP")):
            database.execute(_create(words, definition, body))
            database.execute(_drop(definition))
        return _columns(definition, database, defaults) if definition.kind == "VIEW" else ()


def _columns(view: Definition, database: Database, defaults: Sampling) -> tuple[str, ...]:
    """The names that DuckDB gives to the columns of a view."""
    source = read_source(view.body)
    tree = source.parse()
    expansion = Expansion(source, database, defaults)
    rewritten = expansion.expand(tree.copy())
    names = result_names(database, source, tree, expansion.nulls)
    if names is None:
        names = column_names(database, source, rewritten, context_of(rewritten))
    return (*view.names, *names[len(view.names) :])


def typed(tree: exp.Expr, source: Source, database: Database, defaults: Sampling) -> exp.Expr:
    """A copy of a tree in which each call has the type of its function, for descriptions.

    A call whose arguments are not known yet, in the body of a macro, stays as it is.
    """
    try:
        return Expansion(source, database, defaults).expand(tree.copy())
    except QueryError:
        return tree.copy()


def _create(words: str, definition: Definition, body: exp.Expr) -> str:
    name = _quoted(definition.name)
    sql = stubbed(exp.paren(body) if definition.kind == "MACRO" else body)
    if definition.kind == "VIEW":
        names = ", ".join(map(_quoted, definition.names))
        return f"{words} VIEW {name}{f'({names})' if names else ''} AS {sql}"
    parameters = ", ".join(
        f"{_quoted(one)} := {definition.defaults[one.lower()]}"
        if one.lower() in definition.defaults
        else _quoted(one)
        for one in definition.names
    )
    table = "TABLE " if definition.kind == "TABLE MACRO" else ""
    return f"{words} MACRO {name}({parameters}) AS {table}{sql}"


def _drop(definition: Definition) -> str:
    kind = "MACRO TABLE" if definition.kind == "TABLE MACRO" else definition.kind
    return f"DROP {kind} {_quoted(definition.name)}"


def _quoted(name: str) -> str:
    return to_sql(exp.to_identifier(name, quoted=True))
