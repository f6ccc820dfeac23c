"""Converts answers that a SELECT reads from a column of a subquery or WITH entry.

    SELECT d::DATE FROM (SELECT LLM('...', x) AS d FROM t)  =>  NULL where d is not a date

The rules are those for the SELECT with the call; see sql.answers.conversions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check, has_answer, mark_answer, noted_in
from relquery.sql.answers.conversions import convert
from relquery.sql.answers.kinds import Kinds
from relquery.sql.answers.writing import columns_of
from relquery.sql.form.normalize import conjuncts
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.binding import is_variable
from relquery.sql.read.from_clause import from_only
from relquery.sql.read.scopes import context_of, visible_ctes
from relquery.sql.read.source import DIALECT, to_sql

_CLAUSES = ("expressions", "distinct", "where", "group", "having", "qualify", "windows", "order")

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
    aggregates: Aggregates
    tables: dict[str, frozenset[str]]
    checks: list[OuterCheck] = field(default_factory=list)

    def read(self, tree: exp.Expr) -> exp.Expr:
        """The statement with each answer converted to the type needed there."""
        if isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Query):
            self._cast_written(tree)
        for select in list(_selects(tree)):
            if self._mark(select) and (read := self._converted(select)) is not None:
                if select is tree:
                    return read
                select.replace(read)
        return tree

    def _cast_written(self, tree: exp.Insert) -> None:
        """Write out the casts of an INSERT that would otherwise fail for an answer."""
        query = tree.expression
        given = self._columns_of(query)
        target = columns_of(self.database, tree.this)
        if tree.args.get("by_name"):
            by_name = {name.lower(): kind for name, kind in target}
            kinds = [by_name.get(name.lower(), "VARCHAR") for name, _ in given]
        else:
            kinds = [kind for _, kind in target]
        if len(kinds) != len(given):
            return
        casts = [
            is_text and kind != "VARCHAR" for (_, is_text), kind in zip(given, kinds, strict=True)
        ]
        if any(casts):
            tree.set("expression", _with_casts(query, given, kinds, casts))

    def _mark(self, select: exp.Select) -> bool:
        """Mark the columns that contain answers. Returns whether there are any."""
        sources = self._sources(select)
        if not any(is_text for columns in sources.values() for _, is_text in columns):
            return False
        found = False
        for clause in _CLAUSES:
            nodes = select.args.get(clause) or []
            for node in nodes if isinstance(nodes, list) else [nodes]:
                for column in _columns_in(node):
                    if _is_answer(column, sources):
                        mark_answer(column)
                        found = True
        return found

    def _converted(self, select: exp.Select) -> exp.Select | None:
        context = context_of(select)
        kinds = Kinds(self.database, context, select)
        if not kinds.binds(select):  # it depends on a row of the outer query
            return None
        read = convert(select, kinds, self.aggregates)
        checks = [
            OuterCheck(context.sql(_failed_rows(read, node, check)), check)
            for node, check in noted_in(read, self.aggregates)
        ]
        for one in checks:
            self.database.describe(one.rows)  # fail before the first call, not after
        self.checks += checks
        return read

    def _sources(self, select: exp.Select) -> dict[str, Columns]:
        """The columns of the FROM clause's sources, by lower-case alias."""
        clause = select.args.get("from_")
        sources = [clause.this] if clause is not None else []
        sources += [join.this for join in select.args.get("joins") or ()]
        return {one.alias_or_name.lower(): self._source(one, select) for one in sources}

    def _source(self, source: exp.Expr, select: exp.Select) -> Columns:
        if source.args.get("pivots"):
            return []
        if isinstance(source, exp.Subquery):
            return _renamed(self._columns_of(source.this), source)
        if isinstance(source, exp.Table) and not source.db:
            return _renamed(self._table(source.name, select), source)
        return []

    def _table(self, name: str, select: exp.Select) -> Columns:
        for entry in reversed(visible_ctes(select)):
            if entry.alias.lower() == name.lower():
                return _renamed(self._columns_of(entry.this), entry)
        if name not in self.tables:
            return []
        described = self.database.describe(f"FROM {name}")
        return [(column, column.lower() in self.tables[name]) for column, _ in described]

    def _columns_of(self, query: exp.Expr) -> Columns:
        """The columns of a query."""
        if isinstance(query, exp.Subquery):
            return self._columns_of(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self._columns_of(query.this), self._columns_of(query.expression)
            texts = [is_text for _, is_text in right] + [False] * len(left)
            return [(name, own or texts[at]) for at, (name, own) in enumerate(left)]
        return self._columns_of_select(query) if isinstance(query, exp.Select) else []

    def _columns_of_select(self, select: exp.Select) -> Columns:
        alone = select.copy()
        alone.set("with_", None)
        try:
            described = self.database.describe(context_of(select).sql(to_sql(alone)))
        except QueryError:  # it depends on a row of the outer query
            return []
        sources = self._sources(select)
        items = select.expressions
        if any(item.is_star or item.find(exp.Columns) for item in items):
            texts = {
                name.lower() for columns in sources.values() for name, is_text in columns if is_text
            }
            texts |= {item.alias.lower() for item in items if item.alias and _reads(item, sources)}
            reads = [name.lower() in texts for name, _ in described]
        else:
            widths = [1] * len(items)
            if len(items) != len(described):  # unnest(list_of_structs, recursive := true)
                widths = self._widths(alone, select)
            pairs = zip(items, widths, strict=True)
            reads = [read for item, width in pairs for read in [_reads(item, sources)] * width]
        return [
            (name, kind == "VARCHAR" and is_text)
            for (name, kind), is_text in zip(described, reads, strict=True)
        ]

    def _widths(self, alone: exp.Select, select: exp.Select) -> list[int]:
        """How many columns each item of a SELECT gives. alone: the SELECT without its CTEs."""
        context, widths = context_of(select), []
        for item in alone.expressions:
            one = alone.copy()
            one.set("expressions", [item.copy()])
            one.set("order", None)  # it may name another item
            widths.append(len(self.database.describe(context.sql(to_sql(one)))))
        return widths


def _selects(node: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs of a tree, each after the SELECTs that it reads from."""
    clause = node.args.get("with_")
    children = [child for child in node.iter_expressions() if child is not clause]
    for child in [clause, *children] if clause is not None else children:
        yield from _selects(child)
    if isinstance(node, exp.Select):
        yield node


def _renamed(columns: Columns, source: exp.Expr) -> Columns:
    """The columns, renamed by an alias such as `AS t(a, b)`."""
    names = source.alias_column_names
    return [
        (names[at] if at < len(names) else name, is_text)
        for at, (name, is_text) in enumerate(columns)
    ]


def _columns_in(node: exp.Expr) -> Iterator[exp.Column]:
    for found in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if isinstance(found, exp.Column) and not isinstance(found.this, exp.Star):
            yield found


def _reads(node: exp.Expr, sources: dict[str, Columns]) -> bool:
    return any(_is_answer(column, sources) for column in _columns_in(node))


def _is_answer(column: exp.Column, sources: dict[str, Columns]) -> bool:
    if column.args.get("db") or is_variable(column):
        return False
    table, name = column.table.lower(), column.name.lower()
    named = (columns for alias, columns in sources.items() if table in ("", alias))
    return any(is_text and name == one.lower() for columns in named for one, is_text in columns)


def _with_casts(
    query: exp.Query, given: Columns, kinds: list[str], casts: list[bool]
) -> exp.Select:
    """The rows of a query with some columns cast."""
    numbered = [f"c{at}" for at in range(len(given))]
    items = [
        exp.cast(exp.column(column), exp.DataType.build(kind, DIALECT, udt=True))
        if is_cast
        else exp.column(column)
        for column, kind, is_cast in zip(numbered, kinds, casts, strict=True)
    ]
    named = [
        exp.alias_(item, name, quoted=True) for item, (name, _) in zip(items, given, strict=True)
    ]
    columns = [exp.to_identifier(column) for column in numbered]
    alias = exp.TableAlias(this=exp.to_identifier(ours.WRITTEN), columns=columns)
    inner = query.this if isinstance(query, exp.Subquery) else query
    return exp.select(*named).from_(exp.Subquery(this=inner.copy(), alias=alias))


def _failed_rows(select: exp.Select, node: exp.Expr, check: Check) -> str:
    """A query for the rows of a FROM clause, numbered from 0, where a node's value is not valid."""
    where = select.args.get("where")
    parts = conjuncts(where.this if where is not None else None)
    if node.find_ancestor(exp.Where) is not None:
        parts = [part for part in parts if not has_answer(part)]
    rows = from_only(select)
    rows.set("expressions", [exp.column(ours.ITEMS)])
    if parts:
        rows.where(*parts, copy=False)
    items = f"row_number() OVER () - 1 AS {ours.ROW}, {to_sql(check.value)} AS {ours.VALUE}"
    failed = f"({to_sql(check.failed)}) AS {ours.FAILED}"
    inner = to_sql(rows).replace(ours.ITEMS, f"{items}, {failed}")
    read = f"SELECT {ours.ROW}, {ours.VALUE} FROM ({inner})"
    return f"{read} WHERE {ours.FAILED} ORDER BY {ours.ROW}"
