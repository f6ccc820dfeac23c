"""Binds a statement with calls: its functions become calls, its views and macros are written out,
and DuckDB says which columns it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import VALUE
from relquery.sql.binder.call import FIELD_NAME, asking_in, has_call, is_asking, readable_all
from relquery.sql.binder.definitions import Expansion, Macros, Numbering, macro_called, parsed
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.normalize import check_forms
from relquery.sql.binder.scopes import check_not_recursive
from relquery.sql.binder.signatures import Signatures
from relquery.sql.binder.sources import describe
from relquery.sql.host.database import Database
from relquery.sql.host.kept import Definition, Key
from relquery.sql.parser import build
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Function,
    Node,
    Operator,
    Parameter,
    Query,
    Select,
    SetOperation,
    Star,
    Values,
)


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


def read(shell: Shell, definitions: Mapping[Key, Definition], numbering: Numbering) -> Query:
    """The tree of a statement's query, with views and macros as they are written."""
    tree = parsed(shell.query, numbering)
    if shell.entries:
        outer = parsed(f"{shell.entries} SELECT 1", numbering)
        if {one.name.lower() for one in outer.entries} & {one.name.lower() for one in tree.entries}:
            tree = build.select([build.star()], build.derived(tree))
        tree.entries = [*outer.entries, *tree.entries]
    _name_items(tree, definitions)
    return tree


def bind(
    shell: Shell,
    tree: Query,
    expansion: Expansion,
    parameters: Mapping[str, Any],
    objects: Mapping[str, str],
    database: Database,
    defaults: Sampling,
) -> Bound:
    """Bind a statement. Raises QueryError if it is wrong.

    parameters: values by name. objects: for those that only a call can take, why.
    """
    if shell.kind == "CHANGE":
        _check_changed(shell, database)
    _give_values(tree, parameters)
    expansion.write_out(tree)
    functions = FunctionCatalog.of(database)
    Macros(database, functions).expand(tree)
    check_forms(tree)
    signatures = Signatures(database, functions, defaults)
    holder = Node(node=tree)
    signatures.bind(holder)
    if shell.kind == "CHANGE" and isinstance(tree, Select) and functions.in_select(tree):
        raise QueryError(
            f"An aggregate is in {shell.word}, which is about single rows. Compute it in a "
            "subquery: SET a = (SELECT AI_AGG(...) FROM t)."
        )
    for one in tree.find_all(Parameter):
        if one.name.lower() in objects:
            raise QueryError(objects[one.name.lower()])
    tree.parent = None
    _values_as_queries(tree)
    tree = _ordered_outside(tree)
    columns = tuple(describe(tree, database))
    return Bound(shell, tree, columns, functions, tuple(signatures.notes))


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


def _give_values(tree: Node, parameters: Mapping[str, Any]) -> None:
    """Note on parameters their values, and their names as fields of calls."""
    for one in tree.find_all(Parameter):
        one.meta[VALUE] = parameters.get(one.name.lower())
        one.meta.setdefault(FIELD_NAME, f"${one.name}" if one.name.isdigit() else one.name)


def _name_items(tree: Query, definitions: Mapping[Key, Definition]) -> None:
    """Give items without a name that have a function of ours, or a macro with calls, the name that
    DuckDB gives to them as they are written."""
    unnamed: list[Expression] = []
    for select in tree.find_all(Select):
        for item in select.items:
            stars = any(one is item or _is_pattern(one) for one in item.find_all(Star))
            if item.alias or isinstance(item, Column) or stars:
                continue
            if any(
                is_asking(one) or macro_called(one, definitions) for one in item.find_all(Function)
            ):
                unnamed.append(item)
    for item, name in zip(unnamed, readable_all(unnamed), strict=True):
        item.alias = name


def _is_pattern(star: Star) -> bool:
    is_unpacked = isinstance(star.parent, Operator) and star.parent.kind == build.UNPACK
    return star.is_columns and not is_unpacked


def has_asking(tree: Node) -> bool:
    """Whether a tree has a function of ours."""
    return next(asking_in(tree), None) is not None


def unbound_checks(
    tree: Query,
    parameters: Mapping[str, Any],
    objects: Mapping[str, str],
    database: Database,
    defaults: Sampling,
) -> None:
    """Check the functions of a query as far as that is possible without its tables.

    Raises QueryError.
    """
    _give_values(tree, parameters)
    check_forms(tree)
    for asking in asking_in(tree):
        check_not_recursive(asking)
    Signatures(database, FunctionCatalog.of(database), defaults).bind(Node(node=tree))
    for one in tree.find_all(Parameter):
        if one.name.lower() in objects:
            raise QueryError(objects[one.name.lower()])
