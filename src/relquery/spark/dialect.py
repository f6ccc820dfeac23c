"""SQL of DuckDB in the words of Spark, and what only DuckDB computes taken out of a SELECT.

That is all that a row has by itself: so an expression has one meaning on every machine.

SELECT a, count(*) FILTER (WHERE TRY_CAST(answer AS INT) > 3) FROM rows GROUP BY a
=> the column `TRY_CAST(answer AS INT) > 3` for each row, by DuckDB in the tasks; the rest by Spark
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from sqlglot import ErrorLevel, TokenType, exp, parse_one
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog, is_lambda, is_variable
from relquery.sql.binder.normalize import item_at, keys_of, name_of, unnamed
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Distinct,
    Expression,
    FunctionCall,
    Node,
    Order,
    Query,
    Select,
    Star,
    TableFunction,
    Window,
)
from relquery.sql.planner.checks import is_macro

_NAME = f"{ours.PREFIX}hoisted_"


@dataclass(slots=True)
class Hoisted:
    """columns: what DuckDB computes for each row, by name; filled by `select`."""

    functions: FunctionCatalog
    columns: dict[str, Expression] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def select(self, select: Select) -> Select:
        """A copy of a SELECT over ours.ROWS that reads those columns."""
        copy = select.copy()
        keys = [key for key in keys_of(copy, self.functions) if _is_computed(key)]
        names = {key.key: self._column(key).name for key in keys}
        for node in list(copy.walk()) if names else []:
            if isinstance(node, Expression) and node.key in names:
                node.replace(build.column(names[node.key]).named(node.alias))
        is_grouped = self.functions.in_select(copy)
        for child in list(copy.children()):
            self._lower(child, is_row=not is_grouped)
        return copy

    def _lower(self, node: Node, is_row: bool) -> None:
        """Take out of a tree what rows have by themselves. is_row: whether it is read by row."""
        if isinstance(node, Query) or not _is_computed(node):
            return
        if is_row and isinstance(node, Expression) and self._is_row(node):
            node.replace(self._column(node).named(node.alias))
            return
        is_row = is_row or self.functions.is_aggregate(node)
        for child in list(node.children()):
            self._lower(child, is_row)

    def _is_row(self, node: Expression) -> bool:
        """Whether each row has a value of its own, which its columns decide."""
        alone = node.copy()  # outside of the lambdas around it
        return not is_lambda(node) and all(
            is_variable(part) or part.name.startswith(ours.PREFIX)  # ORDER BY may name an item
            if isinstance(part, Column)
            else not (isinstance(part, Query | Window) or self.functions.is_aggregate(part))
            for part in alone.walk()
        )

    def _column(self, node: Expression) -> Column:
        name = self._names.setdefault(node.key, f"{_NAME}{len(self._names)}")
        self.columns.setdefault(name, unnamed(node))
        return build.column(name)


def _is_computed(node: Node) -> bool:
    """Whether a node computes something from columns."""
    return not isinstance(node, Column) and node.find(Column) is not None


def check_alone(node: Node) -> None:
    """Raises UnsupportedQueryError if an expression over answers contains a subquery."""
    query = node.find(Query)
    if query is not None:
        raise UnsupportedQueryError(
            f"An answer is read beside a subquery ({parser().sql(query)[:80]}), which Spark cannot "
            "compute for each row. Join the subquery in FROM instead."
        )


_KEPT = f"{ours.PREFIX}kept"
_LISTS = ("list", "array_agg")


def to_spark(query: Query) -> str:
    """A query as Spark reads it. Raises UnsupportedQueryError for what Spark does not have."""
    whole = Node(node=query.copy())
    for node in reversed(list(whole.walk())):
        if isinstance(node, FunctionCall):
            _check(node)
        elif isinstance(node, TableFunction) and node.function.name != "unnest":
            raise UnsupportedQueryError(
                f"The table {parser().sql(node.function)[:80]} is a function of DuckDB, which "
                "Spark does not have. Make a view of Spark, and name that: "
                "spark.range(3).createOrReplaceTempView('numbers')."
            )
        elif isinstance(node, Select):
            _cut_last(node)
    try:
        tree = parse_one(parser().sql(whole.args["node"]), dialect=_Printed)
        for join in list(tree.find_all(exp.Join)):
            _say_lateral(join)
            _join_pairs(join)
        _rephrase(tree)
        return tree.sql("spark", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise _unwritable(str(error)) from error


def _check(node: FunctionCall) -> None:
    """Raises UnsupportedQueryError for a function that Spark would compute in another way."""
    if is_macro(node):
        raise UnsupportedQueryError(
            "An answer is read as a number or another type outside the rows that it belongs to, "
            "which Spark does not do by DuckDB's rules. Cast it where it is asked for, in a "
            "subquery: SELECT ... FROM (SELECT CAST(LLM('...', x) AS INTEGER) AS n FROM t)."
        )
    if node.name in _LISTS and node.orders and not isinstance(node, Window):
        raise _unwritable(f"the order inside of {node.name}")


def _unwritable(what: str) -> UnsupportedQueryError:
    return UnsupportedQueryError(
        f"A part of the query cannot be written for Spark ({what}). Compute that part beforehand, "
        "in a view of Spark."
    )


def _cut_last(select: Select) -> None:
    """Let rows be ordered and limited after QUALIFY and DISTINCT ON, not before, as in Spark.

    SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c LIMIT 3
    => SELECT a, b FROM (SELECT a, b, c, ... FROM t QUALIFY row_number() OVER
       (PARTITION BY a ORDER BY a, c) = 1) ORDER BY a, c LIMIT 3
    """
    chosen = [] if select.distinct is None else select.distinct.on
    if not chosen and (select.qualify is None or not select.modifiers):
        return
    if chosen and select.qualify is not None:
        raise UnsupportedQueryError(
            "DISTINCT ON and QUALIFY in one SELECT are not supported over Spark. Put the SELECT "
            "with QUALIFY in a subquery."
        )
    order = [] if select.order is None else select.order.copy().keys
    if any(isinstance(item, Star) for item in (*select.items, *(key.value for key in order))):
        raise UnsupportedQueryError(
            "SELECT * with DISTINCT ON or QUALIFY is not supported here. Name the columns."
        )
    for key in order:
        key.value = _meant(key.value, select)
    inner = select.copy()
    inner.set("modifiers", None)
    if chosen:
        first = parser().expression("row_number() OVER ()")
        by = [_meant(key, select) for key in chosen]
        first.set("orders", [key.copy() for key in order or map(build.ordered, by)])
        first.set("partitions", by)
        inner.qualify = build.compared(build.EQUAL, first, build.number(1))
    values = [*inner.items, *(key.value for key in order)]
    inner.items = [value.named(f"{_KEPT}_{index}") for index, value in enumerate(values)]
    columns = [build.column(f"{_KEPT}_{index}") for index in range(len(values))]
    count = len(select.items)
    for key, column in zip(order, columns[count:], strict=True):
        key.value = column
    pairs = zip(columns[:count], select.items, strict=True)
    outer = build.select(
        [column.named(name_of(item)) for column, item in pairs], build.derived(inner, _KEPT)
    )
    outer.set("modifiers", list(select.modifiers))
    build.set_modifier(outer, Order, Order(orders=order) if order else None)
    build.set_modifier(outer, Distinct, None if chosen else select.distinct)
    select.replace(outer)


def _meant(key: Expression, select: Select) -> Expression:
    """A key of ORDER BY or DISTINCT ON; that of an item, if it is the item's name or place."""
    if isinstance(key, Column) and len(key.names) == 1:
        for item in select.items:
            if name_of(item).lower() == key.name.lower():
                return unnamed(item)
    return item_at(key.copy(), select)


def _say_lateral(join: exp.Join) -> None:
    """Write LATERAL before a subquery of ours that reads the tables before it, as Spark wants it.
    DuckDB sees that by itself."""
    source = join.this
    if isinstance(source, exp.Subquery) and source.alias_or_name == ours.LATERAL:
        inner, alias = exp.Subquery(this=source.this.copy()), source.args["alias"].copy()
        source.replace(exp.Lateral(this=inner, alias=alias))


_PAIRS = f"{ours.PREFIX}pairs"


def _join_pairs(join: exp.Join) -> None:
    """Let an outer join read the pairs that a call has kept from a join, not from its condition.

    l LEFT JOIN r ON c AND EXISTS (SELECT 1 FROM e WHERE e.x = l.a AND e.y = r.b)
    => l LEFT JOIN (SELECT r.*, p.* FROM r JOIN (SELECT DISTINCT x, y FROM e) p ON p.y = r.b) r
       ON c AND r.x = l.a
    """
    exists_nodes = [] if join.args.get("on") is None else list(join.args["on"].find_all(exp.Exists))
    asked = [subquery for subquery in exists_nodes if _source(subquery).startswith(ours.PREFIX)]
    if not asked or not join.side:
        return
    if join.side != "LEFT":
        raise UnsupportedQueryError(
            f"A {join.side} JOIN whose condition has a call over both sides is not supported over "
            "Spark. Write it as a LEFT JOIN."
        )
    select = join.find_ancestor(exp.Select)
    if select is not None and any(
        isinstance(expression, exp.Star) for expression in select.expressions
    ):
        raise UnsupportedQueryError(
            "SELECT * over a LEFT JOIN whose condition has a call over both sides is not supported "
            "over Spark. Name the columns."
        )
    right = join.this.alias_or_name
    inner = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier(right)))
    inner = inner.from_(join.this.copy())
    for number, exists in enumerate(asked):
        name, pairs = f"{_PAIRS}_{number}", []
        own: list[exp.Expr] = []
        other: list[exp.Expr] = []
        for term in exists.find_all(exp.NullSafeEQ):
            column, value = term.this.name, term.expression
            known = f"{name}_{column}"
            pairs.append(exp.column(column).as_(known))
            is_own = {column.table for column in value.find_all(exp.Column)} <= {right}
            (own if is_own else other).append(
                exp.NullSafeEQ(this=exp.column(known, name if is_own else right), expression=value)
            )
        rows = exp.select(*pairs).distinct().from_(_source(exists)).subquery(name)
        inner = inner.select(exp.Column(this=exp.Star(), table=exp.to_identifier(name)))
        inner = inner.join(rows, on=exp.and_(*own) if own else exp.true(), copy=False)
        case = exists.find_ancestor(exp.Case) or exists
        case.replace(exp.paren(exp.and_(*other)) if other else exp.true())
    join.set("this", inner.subquery(right))


def _source(exists: exp.Exists) -> str:
    """The table that an EXISTS reads."""
    table = exists.this.find(exp.Table)
    return "" if table is None else str(table.name)


def _interval(unit: str, arguments: list[exp.Expr]) -> exp.Expr:
    """`INTERVAL 3 DAY`, printed as `to_days(CAST(trunc(CAST(3 AS DOUBLE)) AS INTEGER))`."""
    number = arguments[0]
    while isinstance(number, exp.Cast | exp.Trunc):
        number = number.this
    text = number.sql().strip("'")
    if not text.removeprefix("-").isdigit():
        return exp.Anonymous(this=f"to_{unit}s", expressions=arguments)
    return exp.Interval(this=exp.Literal.string(text), unit=exp.var(unit))


def _row(arguments: list[exp.Expr]) -> exp.Expr:
    several = len(arguments) > 1
    return exp.Tuple(expressions=arguments) if several else exp.func("struct", *arguments)


def _rephrase(tree: exp.Expr) -> None:
    """Write what DuckDB prints in words of its own as the standard does."""
    for node in list(tree.walk()):
        if isinstance(node, exp.Count) and node.this is None:
            node.set("this", exp.Star())
        elif isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            node.replace(exp.In(this=node.this, query=node.expression.this))
        elif isinstance(node, exp.Bracket) and not isinstance(
            index := node.expressions[0], exp.Slice
        ):
            if not index.is_string:  # in brackets Spark counts from 0, and fails beyond the end
                node.replace(exp.Anonymous(this="try_element_at", expressions=[node.this, index]))
        elif isinstance(node, exp.PercentileCont | exp.PercentileDisc):
            if isinstance(given := node.this, exp.Order):
                # By its name, as sqlglot has Spark approximate what it knows.
                share = exp.Anonymous(this=node.sql_name(), expressions=[given.this])
                order = exp.Order(expressions=given.expressions)
                node.replace(exp.WithinGroup(this=share, expression=order))
        elif isinstance(node, exp.Ordered) and node.this.sql() == "COLUMNS(*)":
            node.set("this", exp.var("ALL"))


_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


class _Printed(DuckDB):
    """DuckDB's SQL as DuckDB prints it."""

    INDEX_OFFSET = 0

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **DuckDB.Parser.FUNCTIONS,
            **{f"TO_{unit}S": partial(_interval, unit) for unit in _UNITS},
            "COUNT_STAR": exp.Count.from_arg_list,
            "POSITION": DuckDB.Parser.FUNCTIONS["STRPOS"],
            "ROW": _row,
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in DuckDB.Parser.FUNCTION_PARSERS.items()
            if name != "POSITION"
        }

        def _parse_lambda(self, *given: Any, **named: Any) -> Any:
            """Also one in parentheses: `(lambda x: ...)`."""
            before = self._index
            if self._match(TokenType.L_PAREN) and self._match_text_seq("LAMBDA", advance=False):
                parsed = super()._parse_lambda(*given, **named)
                self._match_r_paren()
                return parsed
            self._retreat(before)
            return super()._parse_lambda(*given, **named)
