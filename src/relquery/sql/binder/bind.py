"""Binds a statement with calls: its functions become calls, its views and macros are written out,
and DuckDB says which columns it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import VALUE
from relquery.sql.binder.call import FIELD_NAME, asking_in, has_call
from relquery.sql.binder.definitions import Macros
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.normalize import check_forms
from relquery.sql.binder.scopes import check_not_recursive
from relquery.sql.binder.signatures import Signatures
from relquery.sql.binder.sources import describe
from relquery.sql.binder.statement import Calling
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tree import Node, Parameter, Query, Select, SetOperation, Values


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement whose query has calls in the place of functions.

    columns: (name, type) of the query's result. notes: warnings about prompts.
    """

    shell: Shell
    query: Query
    columns: tuple[tuple[str, str], ...]
    functions: FunctionCatalog
    notes: tuple[str, ...] = ()


def bind(calling: Calling, database: Database, defaults: Sampling) -> Bound:
    """Bind a statement. Raises QueryError if it is wrong."""
    shell = calling.shell
    if shell.kind == "CHANGE":
        _check_changed(shell, database)
    tree, _ = calling.written_out()
    functions = FunctionCatalog.of(database)
    Macros(database, functions).expand(tree)
    notes = _bind_calls(tree, calling.values, calling.objects, database, functions, defaults)
    if shell.kind == "CHANGE" and isinstance(tree, Select) and functions.in_select(tree):
        raise QueryError(
            f"An aggregate is in {shell.word}, which is about single rows. Compute it in a "
            "subquery: SET a = (SELECT AI_AGG(...) FROM t)."
        )
    _values_as_queries(tree)
    tree = _ordered_outside(tree)
    return Bound(shell, tree, tuple(describe(tree, database)), functions, notes)


def check_calls(
    tree: Query,
    values: Mapping[str, Any],
    objects: Mapping[str, str],
    database: Database,
    defaults: Sampling,
) -> None:
    """Check the functions of a query as far as that is possible without its tables, and put calls
    in their places. values, objects: of its parameters; see Calling. Raises QueryError."""
    for asking in asking_in(tree):
        check_not_recursive(asking)
    _bind_calls(tree, values, objects, database, FunctionCatalog.of(database), defaults)


def _bind_calls(
    tree: Query,
    values: Mapping[str, Any],
    objects: Mapping[str, str],
    database: Database,
    functions: FunctionCatalog,
    defaults: Sampling,
) -> tuple[str, ...]:
    """Put calls in the place of functions. The warnings about them."""
    parameters = [(one, one.name.lower()) for one in tree.find_all(Parameter)]
    for one, name in parameters:
        one.meta[VALUE] = values.get(name)
        one.meta.setdefault(FIELD_NAME, f"${one.name}" if name.isdigit() else one.name)
    check_forms(tree)
    signatures = Signatures(database, functions, defaults)
    signatures.bind(Node(node=tree))
    tree.parent = None
    for one in tree.find_all(Parameter):
        if one.name.lower() in objects:
            raise QueryError(objects[one.name.lower()])
    return tuple(signatures.notes)


def _check_changed(shell: Shell, database: Database) -> None:
    """Raises QueryError for a table whose rows cannot be told apart."""
    names = [name.lower() for name, _ in database.columns(f"SELECT * FROM {shell.target}")]
    if "rowid" in names:
        raise UnsupportedQueryError(
            f"{shell.path[-1]} has a column rowid, which hides DuckDB's number of each row. Rename "
            "the column to change rows by LLM calls."
        )
    try:
        database.columns(f"SELECT rowid FROM {shell.target}")
    except QueryError:
        raise QueryError(f"{shell.path[-1]} is a view. Only tables can be written to.") from None


def _values_as_queries(tree: Query) -> None:
    """`VALUES (LLM('...', 1)), (2)` as `SELECT LLM('...', 1) UNION ALL SELECT 2`, in place."""
    for values in list(tree.find_all(Values)):
        if not has_call(values):
            continue
        if any(one.args.get("class") == "DEFAULT" for one in values.walk()):
            raise UnsupportedQueryError(
                "DEFAULT stands beside an LLM call in VALUES. Leave the column out of the INSERT, "
                "or write its value."
            )
        branches: list[Query] = [build.select([one.copy() for one in row]) for row in values.rows]
        names = values.columns or [f"col{at}" for at in range(len(values.rows[0]))]
        query = branches[0]
        if len(branches) > 1:
            query = SetOperation(setop_type="UNION", setop_all=True, children=branches)
            query.set("cte_map", Node())
        values.replace(build.derived(query, values.alias, names))


def _ordered_outside(tree: Query) -> Query:
    """`a UNION b ORDER BY LLM('...', x)` as `SELECT * FROM (a UNION b) ORDER BY LLM('...', x)`."""
    for whole in list(tree.find_all(SetOperation)):
        if not any(map(has_call, whole.modifiers)):
            continue
        outer = Select(select_list=[build.star()], modifiers=whole.modifiers)
        outer.entries = whole.entries
        if whole is tree:
            tree = outer
        else:
            whole.replace(outer)
        whole.entries = ()
        whole.set("modifiers", None)
        outer.source = build.derived(whole)
    return tree
