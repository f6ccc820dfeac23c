"""Converts answers that a SELECT reads from a column of a subquery or WITH entry.

    SELECT d::DATE FROM (SELECT LLM('...', x) AS d FROM t)  =>  NULL where d is not a date

The rules are those for the SELECT with the call; see planner.conversions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog, columns_in
from relquery.sql.binder.scopes import Context, entry_of
from relquery.sql.binder.sources import Kinds, describe, from_only, leaves
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Derived,
    Expression,
    Node,
    Order,
    Query,
    Select,
    SetOperation,
    Source,
    Star,
    Table,
)
from relquery.sql.planner.checks import Check, has_answer, mark_answer, noted_in
from relquery.sql.planner.conversions import convert

Columns = list[tuple[str, bool]]
"""(column name, whether it is text made of answers) pairs."""


@dataclass(frozen=True, slots=True)
class OuterCheck:
    """rows: a query for (row, value) of the rows that failed a check; rows count from 0."""

    rows: str
    check: Check


@dataclass(slots=True)
class OuterReader:
    """Converts answers in what remains of a statement after its calls are answered.

    tables: scratch tables by name, with the lower-case names of their answer columns.
    checks: for everything read so far.
    """

    database: Database
    functions: FunctionCatalog
    tables: dict[str, frozenset[str]]
    checks: list[OuterCheck] = field(default_factory=list)

    def read(self, tree: Query, target: list[tuple[str, str]] | None, by_name: bool) -> Query:
        """The query with each answer converted to the type needed there. target: (name, type) of
        the columns that it is written to, if it is."""
        if target is not None:
            tree = self._cast_written(tree, target, by_name)
        for select in list(_selects(tree)):
            if self._mark(select) and (read := self._converted(select)) is not None:
                if select is tree:
                    return read
                select.replace(read)
        return tree

    def _cast_written(self, tree: Query, target: list[tuple[str, str]], by_name: bool) -> Query:
        """Write out the casts of an INSERT that would otherwise fail for an answer."""
        given = self._columns_of(tree)
        if by_name:
            kinds_by_name = {name.lower(): kind for name, kind in target}
            kinds = [kinds_by_name.get(name.lower(), "VARCHAR") for name, _ in given]
        else:
            kinds = [kind for _, kind in target]
        if len(kinds) != len(given):
            return tree
        casts = [
            is_text and kind != "VARCHAR" for (_, is_text), kind in zip(given, kinds, strict=True)
        ]
        if not any(casts):
            return tree
        items: list[Expression] = []
        for at, (name, _) in enumerate(given):
            column: Expression = build.column(f"c{at}")
            if casts[at]:
                column = build.cast(column, parser().type(kinds[at]))
            items.append(column.named(name))
        names = [f"c{at}" for at in range(len(given))]
        return build.select(items, build.derived(tree.copy(), ours.WRITTEN, names))

    def _mark(self, select: Select) -> bool:
        """Mark the columns that contain answers. Returns whether there are any."""
        sources = self._sources(select)
        if not any(is_text for columns in sources.values() for _, is_text in columns):
            return False
        found = False
        for clause in select.children():
            if clause.place in ("cte_map", "from_table", "sample"):
                continue
            for column in columns_in(clause):
                if _is_answer(column, sources):
                    mark_answer(column)
                    found = True
        return found

    def _converted(self, select: Select) -> Select | None:
        context = Context.of(select)
        kinds = Kinds(self.database, context, select)
        if not kinds.binds(select):  # it depends on a row of the outer query
            return None
        read = convert(select, kinds, self.functions)
        checks = [
            OuterCheck(parser().sql(context.around(_failed_rows(read, node, check))), check)
            for node, check in noted_in(read, self.functions)
        ]
        for one in checks:
            self.database.columns(one.rows)  # fail before the first call, not after
        self.checks += checks
        return read

    def _sources(self, select: Select) -> dict[str, Columns]:
        """The columns of the FROM clause's sources, by lower-case alias."""
        return {one.name.lower(): self._source(one) for one in leaves(select.source)}

    def _source(self, source: Source) -> Columns:
        if isinstance(source, Derived):
            return _renamed(self._columns_of(source.query), source.columns)
        if isinstance(source, Table) and len(source.path) == 1:
            return _renamed(self._table(source), source.columns)
        return []

    def _table(self, table: Table) -> Columns:
        entry = entry_of(table)
        if entry is not None:
            return _renamed(self._columns_of(entry.query), entry.columns)
        if table.table not in self.tables:
            return []
        described = self.database.columns(f"FROM {table.table}")
        texts = self.tables[table.table]
        return [(column, column.lower() in texts) for column, _ in described]

    def _columns_of(self, query: Query) -> Columns:
        """The columns of a query."""
        if isinstance(query, SetOperation):
            first, *others = map(self._columns_of, query.branches)
            texts = [is_text for _, is_text in first]
            for other in others:
                for at, (_, is_text) in enumerate(other[: len(texts)]):
                    texts[at] |= is_text
            return [(name, is_text) for (name, _), is_text in zip(first, texts, strict=True)]
        return self._columns_of_select(query) if isinstance(query, Select) else []

    def _columns_of_select(self, select: Select) -> Columns:
        context = Context.of(select)
        alone = select.copy()
        alone.entries = ()
        try:
            described = describe(context.around(alone), self.database)
        except QueryError:  # it depends on a row of the outer query
            return []
        sources = self._sources(select)
        items = select.items
        if any(item.find(Star) for item in items):
            texts = {
                name.lower() for columns in sources.values() for name, is_text in columns if is_text
            }
            texts |= {item.alias.lower() for item in items if item.alias and _reads(item, sources)}
            reads = [name.lower() in texts for name, _ in described]
        else:
            widths = [1] * len(items)
            if len(items) != len(described):  # unnest(list_of_structs, recursive := true)
                widths = self._widths(alone, context)
            pairs = zip(items, widths, strict=True)
            reads = [read for item, width in pairs for read in [_reads(item, sources)] * width]
        return [
            (name, kind == "VARCHAR" and is_text)
            for (name, kind), is_text in zip(described, reads, strict=True)
        ]

    def _widths(self, alone: Select, context: Context) -> list[int]:
        """How many columns each item of a SELECT gives."""
        widths = []
        for item in alone.items:
            one = alone.copy()
            one.items = [item.copy()]
            one.set("modifiers", None)  # ORDER BY may name another item
            widths.append(len(describe(context.around(one), self.database)))
        return widths


def _selects(node: Node) -> Iterator[Select]:
    """The SELECTs of a tree, each after the SELECTs that it reads from."""
    children = sorted(node.children(), key=lambda child: child.place != "cte_map")
    for child in children:
        yield from _selects(child)
    if isinstance(node, Select):
        yield node


def _renamed(columns: Columns, names: list[str]) -> Columns:
    """The columns, renamed by an alias such as `AS t(a, b)`."""
    return [
        (names[at] if at < len(names) else name, is_text)
        for at, (name, is_text) in enumerate(columns)
    ]


def _reads(node: Node, sources: dict[str, Columns]) -> bool:
    return any(_is_answer(column, sources) for column in columns_in(node))


def _is_answer(column: Column, sources: dict[str, Columns]) -> bool:
    if len(column.names) > 2:
        return False
    table, name = column.table.lower(), column.name.lower()
    named = (columns for alias, columns in sources.items() if table in ("", alias))
    return any(is_text and name == one.lower() for columns in named for one, is_text in columns)


def _failed_rows(select: Select, node: Expression, check: Check) -> Select:
    """A query for the rows of a FROM clause, numbered from 0, where a node's value is not valid."""
    parts = build.conjuncts(select.where)
    above = [node, *node.ancestors()]
    if any(one.place == "where_clause" for one in above):
        parts = [part for part in parts if not has_answer(part)]
    numbered = parser().expression("row_number() OVER () - 1").named(ours.ROW)
    value, failed = check.value.copy().named(ours.VALUE), check.failed.copy().named(ours.FAILED)
    rows = from_only(select, [numbered, value, failed])
    if parts:
        rows.where = build.all_of(part.copy() for part in parts)
    read = build.select(
        [build.column(ours.ROW), build.column(ours.VALUE)],
        build.derived(rows),
        build.column(ours.FAILED),
    )
    read.add("modifiers", Order(orders=[build.ordered(build.column(ours.ROW))]))
    return read
