"""Builders of parts of trees."""

from __future__ import annotations

from collections.abc import Iterable

from relquery.sql.parser import tree
from relquery.sql.parser.tree import Expression, Node, Query, Select, Source

EQUAL, UNEQUAL = "COMPARE_EQUAL", "COMPARE_NOTEQUAL"
AT_LEAST = "COMPARE_GREATERTHANOREQUALTO"
SAME, DISTINCT = "COMPARE_NOT_DISTINCT_FROM", "COMPARE_DISTINCT_FROM"
AND, OR = "CONJUNCTION_AND", "CONJUNCTION_OR"
NOT, IS_NULL, IS_NOT_NULL = "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"
IN, NOT_IN, COALESCE, TRY = "COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE", "OPERATOR_TRY"
DESCENDING = "DESCENDING"


def column(name: str, *before: str) -> tree.Column:
    """`name`, or `table.name`. before: what is before the name, if anything."""
    return tree.Column(column_names=[*before, name])


def constant(kind: str, text: str | None = None) -> tree.Constant:
    """A literal."""
    literal = {"kind": kind} if text is None else {"kind": kind, "text": text}
    return tree.Constant(literal=Node(**literal))


def text(value: str) -> tree.Constant:
    """A string literal."""
    return constant("STRING", value)


def number(value: int) -> tree.Constant:
    """An integer literal."""
    return constant("INTEGER", str(value))


def boolean(value: bool) -> tree.Constant:
    """TRUE or FALSE."""
    return constant("BOOLEAN", "true" if value else "false")


def null() -> tree.Constant:
    """NULL."""
    return constant("NULL_LITERAL")


def function(name: str, *values: Expression, **named: Expression) -> tree.FunctionCall:
    """A call of a function."""
    arguments = [tree.Argument(expression=value) for value in values]
    arguments += [tree.Argument(name=key, expression=value) for key, value in named.items()]
    made = tree.FunctionCall(function_name=name, arguments=arguments)
    made.set("order_bys", tree.Order())
    return made


def operator(name: str, *values: Expression) -> tree.FunctionCall:
    """An operator such as `+`."""
    made = function(name, *values)
    made.is_operator = True
    return made


def operation(kind: str, *operands: Expression) -> tree.Operator:
    """NOT, IS NULL, COALESCE, TRY and the like."""
    return tree.Operator(type=kind, children=list(operands))


def compared(kind: str, left: Expression, right: Expression) -> tree.ComparisonExpression:
    """A comparison."""
    return tree.ComparisonExpression(type=kind, left=left, right=right)


def all_of(conditions: Iterable[Expression]) -> Expression:
    """Conditions joined with AND; TRUE for none."""
    return _joined(AND, conditions) or boolean(True)


def any_of(conditions: Iterable[Expression]) -> Expression:
    """Conditions joined with OR; FALSE for none."""
    return _joined(OR, conditions) or boolean(False)


def _joined(kind: str, conditions: Iterable[Expression]) -> Expression | None:
    parts: list[Expression] = []
    for condition in conditions:
        is_same = isinstance(condition, tree.Conjunction) and condition.kind == kind
        parts += (
            condition.operands
            if isinstance(condition, tree.Conjunction) and is_same
            else [condition]
        )
    if len(parts) < 2:
        return parts[0] if parts else None
    return tree.Conjunction(type=kind, children=parts)


def when(condition: Expression, value: Expression, default: Expression | None = None) -> tree.Case:
    """`CASE WHEN condition THEN value ELSE default END`."""
    made = tree.Case(case_checks=[tree.When(when_expr=condition, then_expr=value)])
    made.set("else_expr", null() if default is None else default)
    return made


def cast(value: Expression, to: Node, *, is_try: bool = False) -> tree.Cast:
    """CAST or TRY_CAST."""
    return tree.Cast(child=value, type_expr=to, try_cast=True if is_try else None)


def plain_type(name: str) -> tree.Type:
    """A type without parentheses, e.g. DOUBLE."""
    return tree.Type(type_name=name)


def exists(query: Query) -> tree.Subquery:
    """`EXISTS (query)`."""
    return tree.Subquery(
        subquery_type="EXISTS", subquery=Node(node=query), comparison_type="INVALID"
    )


def ordered(value: Expression, direction: str = "ORDER_DEFAULT") -> tree.Ordered:
    """A key of ORDER BY."""
    return tree.Ordered(expression=value, type=direction)


def select(
    items: Iterable[Expression], source: Source | str | None = None, where: Expression | None = None
) -> Select:
    """A SELECT."""
    made = Select(select_list=list(items), where_clause=where)
    made.source = table(source) if isinstance(source, str) else source or tree.Empty()
    return made


def star() -> tree.Star:
    """`*`."""
    return tree.Star()


def table(name: str, alias: str = "") -> tree.Table:
    """A table by its name."""
    return tree.Table(table_name=name, alias=alias or None)


def derived(query: Query, alias: str = "", columns: Iterable[str] = ()) -> tree.Derived:
    """A query in a FROM clause."""
    listed = list(columns) or None
    return tree.Derived(subquery=Node(node=query), alias=alias or None, column_name_alias=listed)


def entry(name: str, query: Query) -> tree.Entry:
    """A WITH entry."""
    value = Node(materialized="CTE_MATERIALIZE_DEFAULT", query_node=query)
    return tree.Entry(key=name, value=value)


def first_of(query: Select, names: Iterable[str]) -> None:
    """Leave one row of each group of rows with equal values in some columns."""
    set_modifier(query, tree.Distinct, tree.Distinct(distinct_on_targets=list(map(column, names))))


def set_modifier(query: Query, kind: type[tree.Modifier], modifier: tree.Modifier | None) -> None:
    """Put a modifier in the place of the query's own of its kind. DuckDB applies them in order."""
    kept = [modifier for modifier in query.modifiers if not isinstance(modifier, kind)]
    kept += [] if modifier is None else [modifier]
    query.set("modifiers", sorted(kept, key=rank) or None)


def rank(modifier: tree.Modifier) -> int:
    """Its place among the modifiers of a SELECT."""
    ranks: list[type[tree.Modifier]] = [tree.Distinct, tree.Order, tree.Limit]
    return ranks.index(type(modifier))


def add_where(query: Select, *conditions: Expression) -> None:
    """Add conditions to WHERE, after its own."""
    own = [] if query.where is None else [query.where]
    query.where = all_of([*own, *conditions])


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The conditions that a condition joins with AND."""
    if isinstance(condition, tree.Conjunction) and condition.is_and:
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [] if condition is None else [condition]


def joined(sources: Iterable[Source]) -> Source:
    """Sources with commas between them."""
    first, *others = sources
    for other in others:
        first = tree.Join(left=first, right=other, ref_type="CROSS")
    return first
