"""Conversions in a SELECT, by which each answer is read as the type the query needs there.

    LLM('...', x)::DATE          =>  what DuckDB's TRY_CAST gives; see planner.checks
    LLM('...', x) = d            =>  the same, as the type of d
    LLM('...', x) * 2            =>  the same, as DOUBLE
    LLM('...', x) ->> 'title'    =>  TRY(LLM('...', x) ->> 'title')

So an answer never aborts a query. If it is not a valid value of the type, or if an expression over
it fails, the result is NULL. planner.checks reports each such value, row by row. The same holds for
answers that a SELECT reads from a column of a subquery or WITH entry (`OuterReader`):

    SELECT d::DATE FROM (SELECT LLM('...', x) AS d FROM t)  =>  NULL where d is not a date
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Call, has_call, readable
from relquery.sql.binder.functions import (
    FunctionCatalog,
    clauses_of,
    columns_in,
    has_window,
    is_lambda,
    makes_rows,
    own_nodes,
)
from relquery.sql.binder.sources import Context, Kinds, entry_of, from_only, leaves
from relquery.sql.binder.stand_ins import ARITHMETIC, beyond_double, compared_in, needs_number
from relquery.sql.optimizer.reads import Lookup, condition_of, note_field_names
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Case,
    Cast,
    Column,
    Derived,
    Expression,
    FunctionCall,
    Node,
    Order,
    Query,
    Select,
    Subquery,
    Table,
)
from relquery.sql.planner.checks import (
    AS_WRITTEN,
    NOTE,
    Check,
    checks_in,
    has_answer,
    is_answer,
    is_macro,
    mark_answer,
    noted,
    reading,
)

# Types that DuckDB compares with text as text.
_COMPARED_AS_TEXT = ("VARCHAR", "BLOB", "VARIANT", "TIME_NS", "ENUM(", "UNION(", '"NULL"')
# Functions that never fail for a text, and those that only choose among values.
_NEVER_FAIL = frozenset(
    (
        *("concat", "||", "lower", "lcase", "upper", "ucase", "trim", "length", "len", "substring"),
        *("struct_pack", "row", "list_value", "if", "nullif", "~~", "~~*", "!~~", "!~~*"),
    )
)
_NULL = build.null().key
_MAY_FAIL_OPERATORS = ("ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT")


def convert(
    select: Select, kinds: Kinds, functions: FunctionCatalog, wanted: Sequence[str] = ()
) -> Select:
    """A SELECT that gives the same rows if all answers are valid values of the types needed.

    select: normalized. wanted: types of the columns that its columns are written to, if any.
    """
    if not any(map(has_answer, clauses_of(select))):
        return select
    whole = _Conversion(kinds, functions, tries=True).of(select, wanted)
    if whole.key == select.key or kinds.binds(whole):
        return whole
    # TRY accepts neither volatile functions nor subqueries.
    return _Conversion(kinds, functions, tries=False).of(select, wanted)


@dataclass(frozen=True, slots=True)
class _Conversion:
    kinds: Kinds
    functions: FunctionCatalog
    tries: bool

    def of(self, select: Select, wanted: Sequence[str]) -> Select:
        select = select.copy()
        nodes = [node for clause in clauses_of(select) for node in own_nodes(clause)]
        answering = [node for node in nodes if has_answer(node)]
        for node in answering:
            if isinstance(node, Expression):
                node.meta[AS_WRITTEN] = node.copy()
        for clause in clauses_of(select):
            note_field_names(clause)
        for item, kind in zip(list(select.items), wanted, strict=False):
            if has_call(item) and self._is_row_level(item):
                given = self.kinds.of(item)
                if given not in (None, kind):
                    noted(item, item, kind, later=True, is_text=given == "VARCHAR")
        for node in reversed(answering):  # inner ones first
            self._convert(node)
        return select

    def _convert(self, node: Node) -> None:
        if isinstance(node, Call):
            if needs_number(node):
                others = beyond_double(node)
                kind = self._common_kind(others) if others else None
                _replace(node, self._read(node, kind or "DOUBLE"))
        elif isinstance(node, Cast):
            if not node.is_try:
                self._convert_cast(node)
        elif (sides := compared_in(node)) is not None:
            self._convert_compared(sides)
        elif isinstance(node, Subquery) and node.compared is not None:
            # Of a query with one column; VARCHAR if DuckDB does not say.
            subquery = {"subquery_type": "SCALAR", "subquery": Node(node=node.query.copy())}
            kind = self.kinds.of(Subquery(**subquery, comparison_type="INVALID"))
            self._convert_compared([node.compared], kind or "VARCHAR")
        elif isinstance(node, FunctionCall) and node.name.lower() == "nullif":
            self._convert_null_if(node)
        elif isinstance(node, Expression) and self.tries and self._may_fail(node):
            _replace(node, noted(build.operation(build.TRY, node.copy().named("")), node, None))

    def _read(self, text: Expression, kind: str, to: Node | None = None) -> Expression:
        """Text read as a type. Raises QueryError if none of its labels is a value of it."""
        labels = text.task.sampling.labels if isinstance(text, Call) else ()
        if labels and not any(
            self.kinds.is_value(reading(build.text(label), kind)) for label in labels
        ):
            raise QueryError(
                f"{readable(text)} is read as {kind}, but none of its labels is a valid {kind}: "
                f"{', '.join(map(repr, labels))}."
            )
        return noted(reading(text.copy().named(""), kind, to), text, kind)

    def _convert_cast(self, node: Cast) -> None:
        if any(call.task.output is not None for call in _calls_read(node.value)):
            return  # the answers are values already
        kind = self.kinds.named(node.to)
        if kind in (None, "VARCHAR") or not self._is_row_level(node.value):
            return
        assert kind is not None
        text = node.value
        if self._is_text(text):
            _replace(node, self._read(text, kind, node.to.copy()))
        else:
            value = build.cast(text.copy(), node.to.copy(), is_try=True)
            _replace(node, noted(value, text, kind))

    def _convert_compared(self, sides: Sequence[Expression], kind: str | None = None) -> None:
        """If answer text is compared with another type, read it as that type."""
        texts = [side for side in sides if self._is_answer_text(side)]
        others = [side for side in sides if not any(side is text for text in texts)]
        kind = kind or self._common_kind(others)
        if kind is None or kind.startswith(_COMPARED_AS_TEXT):
            return
        for side in texts:
            _replace(side, self._read(side, kind))

    def _convert_null_if(self, node: FunctionCall) -> None:
        text, other = node.values[:2]
        if not self._is_answer_text(text):
            self._convert_compared(node.values[:2])
            return
        kind = self._common_kind([other])
        if kind is not None and not kind.startswith(_COMPARED_AS_TEXT):
            equal = build.compared(build.EQUAL, self._read(text, kind), other.copy())
            _replace(node, build.when(equal, build.null(), text.copy()))

    def _common_kind(self, others: list[Expression]) -> str | None:
        """The type that text is cast to when compared with `others`; None if it stays text."""
        # A text literal takes the type of what it is compared with.
        open_kinds = ("STRING", "NULL_LITERAL")
        typed = [
            other
            for other in others
            if not (isinstance(other, tree.Constant) and other.kind in open_kinds)
        ]
        if len(typed) > 1:
            typed = [build.operation(build.COALESCE, *(part.copy() for part in typed))]
        return self.kinds.of(typed[0]) if typed else None

    def _is_answer_text(self, node: Expression) -> bool:
        return has_answer(node) and self._is_row_level(node) and self._is_text(node)

    def _is_text(self, node: Expression) -> bool:
        return is_answer(node) or self.kinds.of(node) == "VARCHAR"

    def _is_row_level(self, node: Node) -> bool:
        """Whether an expression depends only on its row."""
        return not (
            self.functions.has_aggregate(node)
            or has_window(node)
            or makes_rows(node)
            or node.find(Query) is not None
        )

    def _may_fail(self, node: Expression) -> bool:
        if isinstance(node, tree.Window) or not self._is_row_level(node) or _is_double(node):
            return False
        if isinstance(node, tree.Operator):
            return node.kind in _MAY_FAIL_OPERATORS
        if isinstance(node, tree.Lambda):
            return not is_lambda(node)
        return isinstance(node, FunctionCall) and node.name.lower() not in _NEVER_FAIL


def _calls_read(node: Node) -> Iterator[Call]:
    """The call whose value is the value of a node: the node itself, or what its CASE gives."""
    if isinstance(node, Call):
        yield node
    elif isinstance(node, Case) and (node.default is None or node.default.key == _NULL):
        for branch in node.branches:
            yield from _calls_read(branch.value)


def _is_double(node: Node) -> bool:
    """Whether a node reads an answer as DOUBLE, or computes with an answer read as DOUBLE."""
    if isinstance(node, FunctionCall) and node.name in ARITHMETIC:
        return any(map(_is_double, node.values))
    return is_macro(node)


def _replace(node: Node, by: Expression) -> None:
    """Replace an expression with another form of it, keeping its names."""
    by.meta.update({key: node.meta[key] for key in (FIELD_NAME, AS_WRITTEN) if key in node.meta})
    if isinstance(node, Expression):
        by.alias = node.alias
    node.replace(by)


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
    """A converter of answers in what remains of a statement after its calls are answered.

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
        names = [f"c{index}" for index in range(len(given))]
        items: list[Expression] = list(map(build.column, names))
        is_read = False
        for index, kind in enumerate(kinds):
            name, is_text = given[index]
            if is_text and kind != "VARCHAR":
                items[index] = build.cast(items[index], parser().type(kind))
                is_read = True
            items[index].named(name)
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
            node.meta.pop(NOTE)  # SELECTs around this one check places of their own
        return converted

    def _sources(self, select: Select) -> dict[str, Columns]:
        """The columns of the FROM clause's sources, by lower-case alias."""
        return {leaf.name.lower(): self._source(leaf) for leaf in leaves(select.source)}

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
                (name, is_text or any(other[index][1] for other in others if index < len(other)))
                for index, (name, is_text) in enumerate(first)
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
        reads = [
            any(_is_answer(column, sources) for column in columns_in(item)) for item in select.items
        ]
        if any(item.find(tree.Star) for item in select.items):
            texts = {name.lower() for each in sources.values() for name, is_text in each if is_text}
            pairs = zip(select.items, reads, strict=True)
            texts |= {item.alias.lower() for item, is_read in pairs if is_read}
            return [name in texts for name in names]
        if len(reads) == len(names):
            return reads
        widths = []  # unnest(list_of_structs, recursive := true) gives several columns
        for item in select.items:
            copy = select.copy()
            copy.items = [item.copy()]
            copy.set("modifiers", None)  # ORDER BY may name another item
            widths.append(len(self.lookup.columns(copy, select) or ()))
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
    is_answer = any(
        column.lower() == name and is_text for each in named for column, is_text in each
    )
    return is_answer and len(column.names) <= 2


def _failed_rows(select: Select, node: Expression, check: Check) -> Select:
    """A query for the rows of a FROM clause, numbered from 0, where a node's value is not valid."""
    parts = build.conjuncts(select.where)
    if any(ancestor.place == "where_clause" for ancestor in (node, *node.ancestors())):
        parts = [part for part in parts if not has_answer(part)]
    numbered = parser().expression("row_number() OVER () - 1").named(ours.ROW)
    value, failed = check.value.copy().named(ours.VALUE), check.failed.copy().named(ours.FAILED)
    rows = from_only(select, [numbered, value, failed])
    rows.where = condition_of(part.copy() for part in parts)
    columns = [build.column(ours.ROW), build.column(ours.VALUE)]
    read = build.select(columns, build.derived(rows), build.column(ours.FAILED))
    build.set_modifier(read, Order, Order(orders=[build.ordered(build.column(ours.ROW))]))
    return read
