"""Stand-ins for calls, with which DuckDB is asked for columns and types.

A call becomes an expression of its type over its fields. Equal calls become equal ones, so a call
in GROUP BY matches the same call in SELECT. It is a number where SQL needs one without saying which
type.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeVar

from relquery.sql.binder.arguments import literal_of
from relquery.sql.binder.call import Call, makes_items
from relquery.sql.host.database import Database
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Node, Query, Star

N = TypeVar("N", bound=Node)

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "^", "**")
_NUMERIC = frozenset(
    (
        *ARITHMETIC,
        *("avg", "mean", "favg", "sum", "fsum", "sumkahan", "kahan_sum", "product", "geomean"),
        *("geometric_mean", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop"),
        *("var_samp", "median", "quantile", "quantile_cont", "quantile_disc", "mad", "skewness"),
        *("percentile_cont", "percentile_disc", "corr", "covar_pop", "covar_samp", "kurtosis"),
        *("kurtosis_pop", "sem", "abs", "round", "floor", "ceil", "ceiling", "sqrt", "exp", "ln"),
        *("log", "log2", "log10", "sign", "trunc", "pow", "power", "mod"),
    )
)
_EXACT_DIGITS = 15  # decimal digits that a DOUBLE preserves


def needs_number(call: Node) -> bool:
    """Whether a call is used where the query needs a number rather than text.

    That is directly inside a numeric aggregate or function, an arithmetic operator, or a
    comparison with numbers. A cast names its type itself.
    """
    node = _outermost(call)
    if (others := compared_with(node)) is not None:
        return bool(others) and all(map(_is_number, others))
    user = node.parent
    if isinstance(user, tree.Ordered):  # WITHIN GROUP (ORDER BY value)
        user = user.ancestor(tree.FunctionCall, tree.Query)
        if isinstance(user, tree.FunctionCall) and len(user.arguments) > 1:
            return False
        if isinstance(user, tree.Window):
            return False
    elif isinstance(user, tree.Argument):
        user = user.parent
    else:  # a key of a window, a condition of FILTER
        return False
    return isinstance(user, tree.FunctionCall) and user.name.lower() in _NUMERIC


def beyond_double(call: Node) -> list[Expression]:
    """The numbers that a call is compared with and that a DOUBLE may not represent exactly."""
    others = compared_with(_outermost(call)) or []
    return others if any(_digits(other) > _EXACT_DIGITS for other in others) else []


def _outermost(call: Node) -> Node:
    """The outermost node that has the value of a call."""
    node = call
    while node.parent is not None and _passes_value(node, node.parent):
        node = node.parent
    return node


def _passes_value(node: Node, parent: Node) -> bool:
    """Whether the value of `parent` is the value of `node`, as in COALESCE(LLM(...), 0)."""
    if isinstance(parent, tree.When):
        return node.place == "then_expr"
    if isinstance(parent, tree.Case):
        return True
    if isinstance(parent, tree.Operator):
        return parent.kind == build.COALESCE
    if isinstance(parent, tree.Argument) and isinstance(parent.parent, tree.FunctionCall):
        return parent.parent.name == "if" and parent.index > 0
    return isinstance(parent, tree.FunctionCall) and parent.name == "if"


def compared_in(node: Node | None) -> Sequence[Expression] | None:
    """The values that a comparison, BETWEEN or IN compares; None for anything else."""
    if isinstance(node, tree.ComparisonExpression):
        return node.left, node.right
    if isinstance(node, tree.Between):
        return node.value, node.lower, node.upper
    is_in = isinstance(node, tree.Operator) and node.kind in (build.IN, build.NOT_IN)
    return node.operands if isinstance(node, tree.Operator) and is_in else None


def compared_with(node: Node) -> list[Expression] | None:
    """What a value is compared with; None if it is not compared."""
    sides = compared_in(node.parent)
    return None if sides is None else [other for other in sides if other is not node]


def _is_number(node: Node) -> bool:
    value = literal_of(node)
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _digits(number: Node) -> int:
    """The number of digits that a number is written with; 0 if it is written as a DOUBLE."""
    digits = number.find(tree.Constant, tree.Parameter)
    text = str(literal_of(digits)) if isinstance(digits, tree.Parameter) else ""
    text = digits.text.lower() if isinstance(digits, tree.Constant) else text
    return 0 if "e" in text else sum(map(str.isdigit, text.lstrip("-0.")))


def stubbed(node: N) -> N:
    """A copy of a tree with stand-ins for its calls."""
    numeric = {id(call) for call in node.find_all(Call) if needs_number(call)}
    whole = node.copy()
    # A copy has other nodes in the same order.
    pairs = zip(node.walk(), list(whole.walk()), strict=True)
    for copy, is_number in [(two, id(original) in numeric) for original, two in pairs][::-1]:
        if isinstance(copy, Call):
            stand_in = _stand_in(copy, is_number).named(copy.alias)
            if copy is whole:
                return stand_in  # type: ignore[return-value]
            copy.replace(stand_in)
    return whole


def _stand_in(call: Call, is_number: bool) -> Expression:
    fields: list[Expression] = [build.text(repr(call.task))]
    for field in call.fields:
        if not isinstance(field, Star) or makes_items(field):
            fields.append(field.copy())
        elif field.table:
            fields.append(build.column(field.table))  # the row as one value
    value: Expression = build.text("")
    if is_number:
        value = build.cast(build.number(0), build.plain_type("DOUBLE"))
    return instead_of_call(fields, value)


def instead_of_call(fields: Sequence[Expression], value: Expression) -> Expression:
    """A value or NULL, over fields."""
    row = build.function("row", *fields)
    return build.when(build.compared(build.SAME, row, build.null()), value)


def describe(query: Query, database: Database) -> list[tuple[str, str]]:
    """(name, type) of the columns of a query, which may have calls. Raises QueryError."""
    return database.columns(parser().sql(stubbed(query)))
