"""Converts answers that a SELECT reads from a column of a subquery or WITH entry.

    SELECT d::DATE FROM (SELECT LLM('...', x) AS d FROM t)  =>  NULL where d is not a date

The rules are those for the SELECT with the call; see planner.conversions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.functions import clauses_of, columns_in
from relquery.sql.binder.sources import Context, entry_of, from_only, leaves
from relquery.sql.optimizer.reads import Lookup, condition_of
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Derived, Expression, Node, Order, Query, Select, Table
from relquery.sql.planner.checks import Check, checks_in, has_answer, mark_answer
from relquery.sql.planner.conversions import convert

Columns = Sequence[tuple[str, bool]]
"""(column name, whether it is text made of answers) pairs."""
Target = Sequence[tuple[str, str]] | None
"""(name, type) of the columns that a statement writes to; None if it does not."""


def types_written(names: Sequence[str], target: Target, by_name: bool) -> list[str]:
    """Types of the columns that columns are written to; none if they are not as many."""
    kinds = [kind for _, kind in target or ()]
    if target is not None and by_name:
        known = {name.lower(): kind for name, kind in target}
        kinds = [known.get(name.lower(), "VARCHAR") for name in names]
    return kinds if len(kinds) == len(names) else []


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

    lookup: Lookup
    tables: dict[str, frozenset[str]]
    checks: list[OuterCheck] = field(default_factory=list)

    def read(self, statement: Query, target: Target, by_name: bool) -> Query:
        """The query with each answer converted to the type needed there."""
        statement = self._cast_written(statement, target, by_name)
        for select in list(_selects(statement)):
            if (read := self._converted(select)) is not None:
                if select is statement:
                    return read
                select.replace(read)
        return statement

    def _cast_written(self, statement: Query, target: Target, by_name: bool) -> Query:
        """Write out the casts of an INSERT that would otherwise fail for an answer."""
        given = [] if target is None else self._columns_of(statement)
        kinds = types_written([name for name, _ in given], target, by_name)
        names = [f"c{at}" for at in range(len(given))]
        items: list[Expression] = list(map(build.column, names))
        is_read = False
        for at, kind in enumerate(kinds):
            name, is_text = given[at]
            if is_text and kind != "VARCHAR":
                items[at] = build.cast(items[at], parser().type(kind))
                is_read = True
            items[at].named(name)
        if not is_read:
            return statement
        return build.select(items, build.derived(statement, ours.WRITTEN, names))

    def _converted(self, select: Select) -> Select | None:
        """Another form of a SELECT; None if it reads no answers, or a row of the outer query."""
        sources, functions = self._sources(select), self.lookup.functions
        read = [column for clause in clauses_of(select) for column in columns_in(clause)]
        answers = [column for column in read if _is_answer(column, sources)]
        for column in answers:
            mark_answer(column)
        kinds, context = self.lookup.kinds(select), Context.of(select)
        if not answers or not kinds.binds(select):
            return None
        converted = convert(select, kinds, functions)
        for node, check in checks_in(converted, functions):
            rows = parser().sql(context.around(_failed_rows(converted, node, check)))
            self.lookup.database.columns(rows)  # fail before the first call, not after
            self.checks.append(OuterCheck(rows, check))
        return converted

    def _sources(self, select: Select) -> dict[str, Columns]:
        """The columns of the FROM clause's sources, by lower-case alias."""
        return {one.name.lower(): self._source(one) for one in leaves(select.source)}

    def _source(self, source: tree.Source) -> Columns:
        entry = entry_of(source) if isinstance(source, Table) else None
        columns: Columns = []
        if isinstance(source, Derived):
            columns = self._columns_of(source.query)
        elif entry is not None:
            columns = _renamed(self._columns_of(entry.query), entry.columns)
        elif isinstance(source, Table) and source.table in self.tables:
            texts = self.tables[source.table]
            described = self.lookup.database.columns(f"FROM {source.table}")
            columns = [(column, column.lower() in texts) for column, _ in described]
        return _renamed(columns, source.columns)

    def _columns_of(self, query: Query) -> Columns:
        if isinstance(query, tree.SetOperation):
            first, *others = map(self._columns_of, query.branches)
            return [
                (name, is_text or any(other[at][1] for other in others if at < len(other)))
                for at, (name, is_text) in enumerate(first)
            ]
        described = self.lookup.columns(query) if isinstance(query, Select) else None
        if not isinstance(query, Select) or described is None:
            return []
        reads = self._items_read(query, [name.lower() for name, _ in described])
        return [
            (name, kind == "VARCHAR" and is_text)
            for (name, kind), is_text in zip(described, reads, strict=True)
        ]

    def _items_read(self, select: Select, names: list[str]) -> list[bool]:
        """Whether each column of a SELECT reads answers."""
        sources = self._sources(select)
        reads = [any(_is_answer(one, sources) for one in columns_in(item)) for item in select.items]
        if any(item.find(tree.Star) for item in select.items):
            texts = {name.lower() for each in sources.values() for name, is_text in each if is_text}
            pairs = zip(select.items, reads, strict=True)
            texts |= {item.alias.lower() for item, is_read in pairs if is_read}
            return [name in texts for name in names]
        if len(reads) == len(names):
            return reads
        widths = []  # unnest(list_of_structs, recursive := true) gives several columns
        for item in select.items:
            one = select.copy()
            one.items = [item.copy()]
            one.set("modifiers", None)  # ORDER BY may name another item
            widths.append(len(self.lookup.columns(one, select) or ()))
        return [read for read, width in zip(reads, widths, strict=True) for _ in range(width)]


def _selects(node: Node) -> Iterator[Select]:
    """The SELECTs of a tree, each after the SELECTs that it reads from."""
    for child in sorted(node.children(), key=lambda child: child.place != "cte_map"):
        yield from _selects(child)
    if isinstance(node, Select):
        yield node


def _renamed(columns: Columns, names: list[str]) -> Columns:
    """The columns, renamed by an alias such as `AS t(a, b)`."""
    given = [(name, is_text) for name, (_, is_text) in zip(names, columns, strict=False)]
    return [*given, *columns[len(given) :]]


def _is_answer(column: Column, sources: dict[str, Columns]) -> bool:
    table, name = column.table.lower(), column.name.lower()
    named = (columns for alias, columns in sources.items() if table in ("", alias))
    is_answer = any(one.lower() == name and is_text for each in named for one, is_text in each)
    return is_answer and len(column.names) <= 2


def _failed_rows(select: Select, node: Expression, check: Check) -> Select:
    """A query for the rows of a FROM clause, numbered from 0, where a node's value is not valid."""
    parts = build.conjuncts(select.where)
    if any(one.place == "where_clause" for one in (node, *node.ancestors())):
        parts = [part for part in parts if not has_answer(part)]
    numbered = parser().expression("row_number() OVER () - 1").named(ours.ROW)
    value, failed = check.value.copy().named(ours.VALUE), check.failed.copy().named(ours.FAILED)
    rows = from_only(select, [numbered, value, failed])
    rows.where = condition_of(part.copy() for part in parts)
    columns = [build.column(ours.ROW), build.column(ours.VALUE)]
    read = build.select(columns, build.derived(rows), build.column(ours.FAILED))
    build.set_modifier(read, Order, Order(orders=[build.ordered(build.column(ours.ROW))]))
    return read
