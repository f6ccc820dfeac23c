"""Creates the views and macros with calls that a connection keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relquery.prompt import Sampling
from relquery.sql.binder.bind import Bound, bind, read, unbound_checks
from relquery.sql.binder.call import asking_in
from relquery.sql.binder.definitions import Expansion, Numbering
from relquery.sql.binder.signatures import unbound
from relquery.sql.binder.sources import stubbed
from relquery.sql.binder.statement import Defined, reading
from relquery.sql.host.database import Database
from relquery.sql.host.kept import Definition, Key
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tree import Column, Node, Query, Select


def define(defined: Defined, database: Database, defaults: Sampling) -> Definition:
    """A view or macro that DuckDB has checked, and that the connection may keep.

    Drops what it replaces. Raises QueryError.
    """
    check_defined_calls(defined, database, defaults)
    head, definition = defined.head, defined.definition
    bound = _bound(definition, defined.definitions, database, defaults)
    stand_in = _stand_in(definition, defined.definitions, bound)
    replaces, temporary = " OR REPLACE" * head.replaces, " TEMP" * head.temporary
    # A temporary one would hide it, so nothing temporary may have its name.
    for words in dict.fromkeys((f"CREATE{replaces}{temporary}", "CREATE TEMP")):
        database.execute(_create(words, definition, stand_in))
        database.execute(_drop(definition))
    if definition.kind != "VIEW" or bound is None:
        return definition
    names = [name for name, _ in bound.columns]
    return replace(definition, columns=(*definition.names, *names[len(definition.names) :]))


def check_defined_calls(defined: Defined, database: Database, defaults: Sampling) -> None:
    """Check what can be said of the calls of a view or macro by themselves. Raises QueryError."""
    expansion = Expansion(defined.definitions, Numbering())
    tree = reading(defined.definition)
    expansion.write_out(tree)
    _, body = expansion.used[defined.definition.key]
    names = set(map(str.lower, defined.definition.names))
    if defined.definition.kind == "VIEW" or not _decide(names, body):
        unbound_checks(body.copy(), {}, {}, database, defaults)


def _decide(names: set[str], body: Query) -> bool:
    """Whether parameters of a macro are prompts or options of a call."""
    for call in asking_in(body):
        prompts = [one.value for one in call.arguments if one.name]
        for argument in [*call.values[:1], *prompts]:
            if any(column.names[0].lower() in names for column in argument.find_all(Column)):
                return True
    return False


def _bound(
    definition: Definition,
    definitions: Mapping[Key, Definition],
    database: Database,
    defaults: Sampling,
) -> Bound | None:
    """The query of a view, bound; None for a macro, whose parameters mean nothing yet."""
    if definition.kind != "VIEW":
        return None
    others = {key: one for key, one in definitions.items() if key != definition.key}
    numbering = Numbering()
    shell = Shell("QUERY", definition.body)
    tree = read(shell, others, numbering)
    return bind(shell, tree, Expansion(others, numbering), {}, {}, database, defaults)


def _stand_in(
    definition: Definition, definitions: Mapping[Key, Definition], bound: Bound | None
) -> str:
    """The body with values of their types for its calls, so that DuckDB can check it."""
    if bound is not None:
        return parser().sql(stubbed(bound.query))
    expansion = Expansion(definitions, Numbering())
    expansion.write_out(reading(definition))
    _, body = expansion.used[definition.key]
    holder = Node(node=body.copy())
    unbound(holder)
    query = holder.args["node"]
    query.parent = None
    if definition.kind == "MACRO":
        assert isinstance(query, Select)
        return f"({parser().sql(query.items[0])})"
    return parser().sql(query)


def _create(words: str, definition: Definition, sql: str) -> str:
    name = _quoted(definition.name)
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
    return '"' + name.replace('"', '""') + '"'
