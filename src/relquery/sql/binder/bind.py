"""The binding of a statement with calls: its functions become calls, its views and macros are
written out, and DuckDB says which columns it has."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from relquery.errors import (
    QueryError,
    RelqueryError,
    UnknownColumnError,
    UnsupportedQueryError,
    unknown,
)
from relquery.prompt import Sampling
from relquery.sql import names as ours
from relquery.sql.binder.arguments import OF_ALL, VALUE, LlmFunction, shown
from relquery.sql.binder.call import (
    FIELD_NAME,
    NUMBER,
    WRITTEN,
    asking_in,
    has_call,
    is_asking,
)
from relquery.sql.binder.definitions import Macros, parsed
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.sources import (
    Context,
    Sources,
    check_not_recursive,
    read_sources,
    with_both_sides,
)
from relquery.sql.binder.stand_ins import compared_with, describe, instead_of_call
from relquery.sql.binder.statement import Calling
from relquery.sql.binder.text_functions import FUNCTIONS
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell, read_shell
from relquery.sql.parser.tree import (
    Argument,
    Cast,
    Column,
    ComparisonExpression,
    Constant,
    Entry,
    Expression,
    FunctionCall,
    Limit,
    Node,
    Parameter,
    Query,
    Select,
    SetOperation,
    Star,
    TableFunction,
    Window,
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


def bind(calling: Calling, database: Database, defaults: Sampling) -> Bound:
    """Bind a statement. Raises QueryError if it is wrong."""
    shell = calling.shell
    if shell.kind == "CHANGE":
        _check_changed(shell, database)
    tree = calling.written_out()
    functions = FunctionCatalog.of(database)
    Macros(functions).expand(tree)
    notes = _bind_calls(tree, calling.values, calling.objects, database, functions, defaults)
    if shell.kind == "CHANGE" and isinstance(tree, Select) and functions.in_select(tree):
        raise QueryError(
            f"An aggregate is in {shell.word}, which is about single rows. Compute it in a "
            "subquery: SET a = (SELECT AI_AGG(...) FROM t)."
        )
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


def _check_reading(tree: Query) -> None:
    """Raises UnsupportedQueryError for a WITH entry that changes a table: a query with calls is run
    in parts, which would change it several times."""
    for entry in tree.find_all(Entry):
        if type(entry.query) is Query:  # INSERT, UPDATE or DELETE
            raise UnsupportedQueryError(
                f"The WITH entry '{entry.name}' changes a table, which a query with LLM calls does "
                "not support. Run it first as a statement of its own, then ask about its rows."
            )


def _bind_calls(
    tree: Query,
    values: Mapping[str, Any],
    objects: Mapping[str, str],
    database: Database,
    functions: FunctionCatalog,
    defaults: Sampling,
) -> tuple[str, ...]:
    """Put calls in the place of functions. The warnings about them."""
    _check_reading(tree)
    parameters = [(parameter, parameter.name.lower()) for parameter in tree.find_all(Parameter)]
    for parameter, name in parameters:
        parameter.meta[VALUE] = values.get(name)
        parameter.meta.setdefault(
            FIELD_NAME, f"${parameter.name}" if name.isdigit() else parameter.name
        )
    _check_forms(tree)
    in_order = sorted(asking_in(tree), key=lambda one: one.span or (0, 0))
    for number, asking in enumerate(in_order):
        asking.meta[NUMBER] = number
    signatures = Signatures(database, functions, defaults)
    signatures.bind(Node(node=tree))
    tree.parent = None
    for parameter in tree.find_all(Parameter):
        if parameter.name.lower() in objects:
            raise QueryError(objects[parameter.name.lower()])
    return tuple(signatures.notes)


def _check_forms(node: Node) -> None:
    """Raises UnsupportedQueryError for a function of ours that stands in FROM, or that has a clause
    of an aggregate's."""
    for call in asking_in(node):
        name = call.name.upper()
        if isinstance(call.parent, TableFunction):
            raise UnsupportedQueryError(
                f"{name} gives a value, not rows, so it cannot stand in FROM. Write "
                f"SELECT {name}('prompt', column, ...)."
            )
        is_aggregate = name.lower() in ours.AGGREGATES
        is_window = isinstance(call, Window)
        clauses = {
            "OVER": is_window,
            "FILTER": call.filter is not None and not is_aggregate,
            "DISTINCT": call.distinct and not is_aggregate,
            "ORDER BY": bool(call.orders) and not is_aggregate and not is_window,
            "IGNORE NULLS": bool(call.args.get("ignore_nulls")),
        }
        clause = next((place for place, is_there in clauses.items() if is_there), None)
        if clause and is_aggregate:
            raise UnsupportedQueryError(
                f"{name} does not take {clause}: it is asked once per group. Write it with GROUP "
                "BY in a subquery, and join its rows."
            )
        if clause:
            raise UnsupportedQueryError(
                f"An LLM call does not take {clause}: it runs once per row, and once for equal "
                f"inputs. Remove {clause}."
            )


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


_KINDS = {"ai_filter": "BOOLEAN", "ai_score": "DOUBLE", "ai_rank": "BIGINT"}
_REMEDIES = {
    "BOOLEAN": "Use it as a condition by itself, with NOT before it for the others.",
    "DOUBLE": "Compare it with a number.",
}


@dataclass(slots=True)
class Signatures:
    """A binder of the functions in one statement.

    defaults: sampling for calls that set nothing; its labels are for LLM alone. notes: warnings
    about prompts.
    """

    database: Database
    functions: FunctionCatalog
    defaults: Sampling
    notes: list[str] = field(default_factory=list)
    _sources: dict[int, Sources | None] = field(default_factory=dict)

    def bind(self, holder: Node) -> None:
        """Put calls in the place of functions below a node. Raises QueryError for wrong
        arguments."""
        for node in reversed(list(asking_in(holder))):  # inner ones first
            self._bind(node)

    def _bind(self, node: FunctionCall) -> None:
        name, defaults = node.name.lower(), self.defaults
        if name != "llm":
            defaults = replace(defaults, labels=(), schema=None)

        def knows(column: Column) -> bool:
            return self._knows(column, node)

        bind, own = FUNCTIONS[name]
        is_aggregate = self.functions.is_aggregate
        function = LlmFunction(node, self.database, defaults, knows, is_aggregate, own)
        value = bind(function)
        self._check_compared(function, value)
        self.notes += [note for note in function.notes if note not in self.notes]
        written = str(node.meta[WRITTEN])
        value.meta[WRITTEN] = name.upper() + written[len(name) :]
        if FIELD_NAME in node.meta:
            value.meta[FIELD_NAME] = node.meta[FIELD_NAME]
        node.replace(value.named(node.alias))

    def _knows(self, column: Column, node: Node) -> bool:
        """Whether a FROM clause around a call has a column; also if DuckDB must say."""
        for select in node.ancestors():
            if isinstance(select, Select):
                sources = self._of(select)
                if sources is None or sources.has_column(column):
                    return True
        return False

    def _of(self, select: Select) -> Sources | None:
        if id(select) not in self._sources:
            self._sources[id(select)] = None
            with suppress(QueryError):
                sources = sources_of(select, with_both_sides(select), self.database)
                self._sources[id(select)] = sources
        return self._sources[id(select)]

    def _check_compared(self, function: LlmFunction, value: Expression) -> None:
        """Raises QueryError where a function's value is compared with a text that cannot be of its
        type.

        AI_FILTER('Is it late?', message) = 'maybe'     'maybe' is not a BOOLEAN

        DuckDB would find that when it runs the comparison, after the calls.
        """
        others = compared_with(function.node) or ()
        texts = [side for side in others if isinstance(side, Constant) and side.kind == "STRING"]
        kind = _KINDS.get(function.name, "")
        if texts and isinstance(value, Cast) and not kind:
            kind = parser().sql(value.to)
        for other in texts if kind else ():
            tried = build.cast(other.copy(), parser().type(kind), is_try=True)
            if self.database.fetch(f"SELECT {parser().sql(tried)}").column(0).null_count:
                raise QueryError(
                    f"{function.written} is compared with {shown(other)}, but it is of type "
                    f"{kind}. {_REMEDIES.get(kind, 'Compare it with a value of that type.')}"
                )


def sources_of(select: Select, probe: Select, database: Database) -> Sources:
    """What a SELECT reads, before all of its functions are bound. probe: its FROM clause."""
    context = Context.of(select)
    for part in (probe, *context.entries):
        unbound(part)
    return read_sources(database, probe, context)


def unbound(node: Node) -> None:
    """Put NULL in the place of functions that are not bound yet, where their columns exist."""
    for call in reversed(list(asking_in(node))):
        kind = _KINDS.get(call.name.lower(), "VARCHAR")
        value: Expression = build.cast(build.null(), build.plain_type(kind))
        read = [part.copy() for part in call.values if part.find(Column) is not None]
        if read:
            value = instead_of_call([part.named("") for part in read], value)
        call.replace(value.named(call.alias))


def in_scope(error: UnknownColumnError, sql: str, database: Database) -> QueryError:
    """The error with all columns in scope; the given error if they are unknown."""
    try:
        tree = parsed(read_shell(sql).query)
        for column in list(tree.walk()):
            if not isinstance(column, Column | Star):
                continue
            select = column.ancestor(Select)
            if select is None or not _is_meant(column, error.column):
                continue
            if column.ancestor(Limit, Select) is not select:
                return QueryError(
                    f"LIMIT and OFFSET take a number, not the column '{error.column}'."
                )
            probe = Select(from_table=None if select.source is None else select.source.copy())
            sources = sources_of(select, probe, database)
            if (better := _error_at(column, sources, sql)) is not None:
                return better
    except RelqueryError:
        pass
    return error


def _is_meant(column: Column | Star, name: str) -> bool:
    written = column.table if isinstance(column, Star) else column.name
    return written.lower() == name.lower()


def _error_at(column: Column | Star, sources: Sources, sql: str) -> QueryError | None:
    """What is wrong with a column of this FROM clause; None if nothing is."""
    by_alias = {alias.lower(): (alias, columns) for alias, columns in sources.columns.items()}
    alias, columns = by_alias.get(column.table.lower(), ("", sources.names))
    if isinstance(column, Star):
        if alias:
            return None
        tables = list(sources.columns)
        return QueryError(unknown("table", column.table, tables, of="this FROM clause"))
    is_known = column.name.lower() in map(str.lower, columns)
    if is_known or not columns or (column.table and not alias):
        return None
    equals = column.parent
    if (
        isinstance(equals, ComparisonExpression)
        and equals.left is column
        and _is_option(column, equals)
    ):
        start, end = equals.span or (0, 0)
        written = sql.encode()[start:end].decode(errors="replace")
        name, value = column.name, written.partition("=")[2].strip()
        return QueryError(
            f"'{name} = {value}' compares a column '{name}', which does not exist. To set the "
            f"LLM option, write {name} := {value}."
        )
    tables = [alias] if alias else list(sources.columns)
    where = f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}" if tables else "this query"
    known = dict.fromkeys(name for name in columns if not name.startswith(ours.PREFIX))
    return UnknownColumnError(column.name, where, known)


def _is_option(column: Column, equals: ComparisonExpression) -> bool:
    """Whether a comparison such as `labels = [...]` is meant to set an option of a function."""
    argument = equals.parent
    function = argument.parent if isinstance(argument, Argument) else None
    if not isinstance(function, FunctionCall) or not is_asking(function):
        return False
    options = (*OF_ALL, *FUNCTIONS[function.name.lower()][1])
    return equals.kind == build.EQUAL and column.name.lower() in options
