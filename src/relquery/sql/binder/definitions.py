"""Expansion of the views and macros that a statement reads, as far as a plan has to see what is in
them: LLM calls, and of DuckDB's macros aggregates, window functions and generated rows.

FROM v                  =>  WITH e AS (SELECT LLM('...', a) AS x FROM t) ... FROM e AS v
WHERE is_nice(review)   =>  WHERE (LLM('Is it nice?', review) = 'Yes')

CREATE MACRO cnt(x) AS count(x)
cnt(LLM('...', a))      =>  count(LLM('...', a))

A user's macro is also written out if an LLM call is one of its arguments. DuckDB does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    WRITTEN,
    asking_in,
    is_asking,
    named_like,
    readable,
    readable_all,
)
from relquery.sql.binder.functions import FunctionCatalog, has_window, is_variable, makes_rows
from relquery.sql.binder.sources import entry_of
from relquery.sql.host.catalog import Definition, Key
from relquery.sql.host.catalog import ListedFunction as Listed
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tree import Column, Entry, Expression, FunctionCall, Node, Query, Select

Definitions = Mapping[Key, Definition]
_SCHEMA = "main"  # of views and tables that are named without one
_MOST = 1000  # macros written out in one statement; macros cannot call themselves


def parsed(sql: str) -> Query:
    """The tree of a query, with a note on how each function of ours is written. Raises
    SqlSyntaxError."""
    query, data = parser().query(sql), sql.encode()
    for node in asking_in(query):
        start, end = node.span or (0, 0)
        text = data[start:end].decode(errors="replace")
        node.meta[WRITTEN] = node.name.lower() + text[text.find("(") :]
    return query


def asks(query: Node, definitions: Definitions) -> bool:
    """Whether a tree has a function of ours, or reads a view or macro with calls."""
    return any(is_asking(node) or definition_of(node, definitions) for node in query.walk())


def read(shell: Shell, definitions: Definitions) -> Query:
    """The tree of a statement's query, with views and macros as they are written."""
    query = parsed(shell.query)
    if shell.entries:
        outer = parsed(f"{shell.entries} SELECT 1")
        names = {entry.name.lower() for entry in outer.entries}
        if any(entry.name.lower() in names for entry in query.entries):
            query = build.select([build.star()], build.derived(query))
        query.entries = [*outer.entries, *query.entries]
    query = _without_values(query, definitions)
    _name_items(query, definitions)
    return query


def _without_values(query: Query, definitions: Definitions) -> Query:
    """VALUES (LLM('...'), 1), ('b', 2)
    => SELECT LLM('...') AS col0, 1 AS col1 UNION ALL SELECT 'b', 2"""
    for values in list(query.find_all(tree.Values)):
        select = values.parent
        if not isinstance(select, Select) or not asks(values, definitions):
            continue
        rows = [
            build.select(value.copy().named(f"col{index}") for index, value in enumerate(row))
            for row in values.rows
        ]
        put = (
            rows[0]
            if len(rows) == 1
            else tree.SetOperation(setop_type="UNION", setop_all=True, children=rows)
        )
        put.set("modifiers", select.args.get("modifiers"))
        put.entries = select.entries
        if select is query:
            query = put
        else:
            select.replace(put)
    return query


def _name_items(query: Query, definitions: Definitions) -> None:
    """Give items without a name that have a function of ours, or a macro with calls, the name that
    DuckDB gives to them as they are written."""
    unnamed: list[Expression] = []
    for select in query.find_all(Select):
        for item in select.items:
            stars = any(star is item or star.is_columns for star in item.find_all(tree.Star))
            if item.alias or isinstance(item, Column) or stars:
                continue
            calls = item.find_all(FunctionCall)
            if any(is_asking(call) or definition_of(call, definitions) for call in calls):
                unnamed.append(item)
    for item, name in zip(unnamed, readable_all(unnamed), strict=True):
        item.alias = name


def definition_of(node: Node, definitions: Definitions) -> Definition | None:
    """The view or macro with calls that a source or a function call means; None if it is an
    ordinary one."""
    if isinstance(node, tree.Table):
        *schema, name = map(str.lower, node.path)
        definition = definitions.get(("VIEW", name)) if schema in ([], [_SCHEMA]) else None
        return definition if schema or entry_of(node) is None else None
    is_of_source = isinstance(node.parent, tree.TableFunction)
    if not isinstance(node, FunctionCall) or node.schema or is_of_source:
        return None
    return definitions.get(("MACRO", node.name.lower()))


def written_out(query: Query, definitions: Definitions) -> Query:
    """A query with its macros written out, behind a WITH entry for each view that it reads.

    Changes the query. Raises QueryError for wrong arguments and for definitions that read
    themselves.
    """
    views: dict[Key, Entry] = {}
    _write_out(query, definitions, views, ())
    source = query.source if isinstance(query, Select) else None
    if isinstance(source, tree.Show) and source.query is not None:  # it sees no entry around it
        source.query.entries = [*views.values(), *source.query.entries]
        return query
    query.entries = [*views.values(), *query.entries]
    return query


def _write_out(
    query: Query,
    definitions: Definitions,
    views: dict[Key, Entry],
    within: tuple[Definition, ...],
) -> None:
    """Write out the macros of a query, in place, and add the views that it reads, each after those
    that it reads itself. within: the definitions that are being written out."""
    for node in reversed(list(query.walk())):
        definition = definition_of(node, definitions)
        if definition is None:
            continue
        if definition.key in views:
            _read_entry(node, views[definition.key])
            continue
        if definition in within:
            path = " reads ".join(view.name for view in [*within, definition])
            raise QueryError(f"{definition.name} reads itself: {path}. Break the circle.")
        body = definition_query(definition, definitions)
        _write_out(body, definitions, views, (*within, definition))
        if isinstance(node, FunctionCall):
            put = _applied(definition, body, node)
            named_like(put, node)
            node.replace(put.named(node.alias))
        else:
            views[definition.key] = entry = build.entry(ours.entry(len(views)), body)
            entry.value.set("aliases", list(definition.names) or None)
            _read_entry(node, entry)


def _read_entry(node: Node, entry: Entry) -> None:
    """Make a table, which has the name of a view, read the entry that has the view's query."""
    assert isinstance(node, tree.Table)
    node.alias, node.table = node.name, entry.name
    node.set("schema_name", None)


def definition_query(definition: Definition, definitions: Definitions) -> Query:
    """The query of a view, or a SELECT of the expression of a macro."""
    if definition.kind == "VIEW":
        return read(Shell("QUERY", definition.body), definitions)
    query = parsed(f"SELECT {definition.body}")
    for call in asking_in(query):
        call.meta["own"] = True
    return query


def _applied(macro: Definition, body: Query, call: FunctionCall) -> Expression:
    """The expression of a macro for the arguments of a call."""
    values, problem = _arguments(call, [name.lower() for name in macro.names])
    if problem:
        raise QueryError(f"The macro {macro.name}({', '.join(macro.names)}) {problem}.")
    put = put_arguments(body, values)
    for inner in reversed(list(asking_in(put))):
        if "own" in inner.meta:
            listing = ", ".join(readable_all(inner.values))
            inner.meta[WRITTEN] = f"{inner.name.lower()}({listing})"
    assert isinstance(put, Select)
    (item,) = put.items
    return item


def put_arguments(body: Node, values: Mapping[str, Expression]) -> Node:
    """A macro body with its parameters replaced by values, by lower-case name."""

    def put(node: Node) -> Node | None:
        if not isinstance(node, Column) or is_variable(node):
            return None
        value = values.get(node.names[0].lower())
        if value is None:
            return None
        inner: Expression = value.copy()
        for name in node.names[1:]:
            inner = build.operation("STRUCT_EXTRACT", inner, build.text(name))
        named_like(inner, node)
        return inner.named(node.alias)

    taken = {
        column.names[0].lower() for value in values.values() for column in value.find_all(Column)
    }
    return _rename_variables(body.copy(), taken).rebuilt(put)


def _rename_variables(body: Node, taken: set[str]) -> Node:
    """Give other names to variables of lambdas that are named like columns of arguments."""
    for function in body.find_all(tree.Lambda):
        for name in function.names & taken:
            named = (
                column for column in function.find_all(Column) if column.names[0].lower() == name
            )
            for column in list(filter(is_variable, named)):
                column.names = [f"{name}_of_macro", *column.names[1:]]
    return body


def _arguments(call: FunctionCall, names: Sequence[str]) -> tuple[dict[str, Expression], str]:
    """The values of a macro's parameters, and what is wrong with them; "" for nothing. names: in
    lower case."""
    given = [argument.value for argument in call.arguments if not argument.name]
    by_name = {
        argument.name.lower(): argument.value for argument in call.arguments if argument.name
    }
    values = {**by_name, **dict(zip(names, given, strict=False))}
    missing = ", ".join(name for name in names if name not in values)
    if surplus := [name for name in by_name if name not in names]:
        return values, f"has no parameter {surplus[0]}"
    if len(given) > len(names):
        return values, f"is given {len(given)} values"
    return values, f"is given no value for {missing}" if missing else ""


@dataclass(slots=True)
class Macros:
    """The scalar macros of a database, each read when a query uses it.

    Macros that the parser cannot read are left to DuckDB.
    """

    functions: FunctionCatalog
    _known: dict[str, list[tuple[Listed, Expression, bool]]] = field(default_factory=dict)

    def expand(self, query: Node) -> None:
        """Write out the macros in a statement that a plan has to see, in place.

        Raises UnsupportedQueryError for a macro that is called with a schema or with default
        values.
        """
        for _ in range(_MOST):
            variable = next(
                (call for call in query.find_all(FunctionCall) if self._is_subtle(call)), None
            )
            if variable is None:
                return
            put = self._expanded(variable)
            named_like(put, variable)
            # An item without a name is called as it is written.
            is_item = variable.place == "select_list" and not variable.alias
            variable.replace(put.named(readable(variable) if is_item else variable.alias))
        raise UnsupportedQueryError(f"This query calls more than {_MOST} macros. Write them out.")

    def _of(self, name: str) -> list[tuple[Listed, Expression, bool]]:
        """Macros of a name with their bodies, and whether these, or macros that they call, compute
        over more than one row."""
        name = name.lower()
        if name not in self._known:
            self._known[name] = []
            for listed in self.functions.listed.get(name, ()):
                if listed.kind != "macro" or not (listed.is_internal or listed.is_users):
                    continue
                try:
                    body = parser().expression(listed.body or "")
                except QueryError:
                    continue
                hides = has_window(body) or makes_rows(body) or self.functions.has_aggregate(body)
                called = (self._of(call.name) for call in body.find_all(FunctionCall))
                hides = hides or any(inner for macros in called for *_, inner in macros)
                self._known[name].append((listed, body, hides))
        return self._known[name]

    def _is_subtle(self, call: FunctionCall) -> bool:
        if isinstance(call.parent, tree.TableFunction) or isinstance(call, tree.Window):
            return False  # over a window it has a value for each row
        macros = self._of(call.name)
        asks = bool(macros) and next(asking_in(call), None) is not None
        return any(hides or (asks and not macro.is_internal) for macro, _, hides in macros)

    def _expanded(self, call: FunctionCall) -> Expression:
        for macro, body, _ in () if call.schema else self._of(call.name):
            values, problem = _arguments(call, macro.parameters)
            if not problem and body.find(Query) is None:
                put = put_arguments(body, values)
                assert isinstance(put, Expression)
                return put
        raise UnsupportedQueryError(
            f"The macro call {readable(call)[:80]} has a name before it, leaves out arguments or "
            "has a subquery in it, which a query with LLM calls does not support. Remove the name "
            "and give all arguments, or write out what the macro does."
        )
