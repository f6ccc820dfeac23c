"""Where SQL needs a number from a call without saying which type."""

from __future__ import annotations

from decimal import Decimal

from relquery.sql.binder.arguments import literal_of
from relquery.sql.parser.tree import (
    Argument,
    Between,
    Case,
    Comparison,
    Constant,
    Expression,
    Function,
    Node,
    Operator,
    Ordered,
    Parameter,
    When,
)

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
    node, parent = _place(call)
    if (others := _compared_with(node, parent)) is not None:
        return bool(others) and all(map(_is_number, others))
    return isinstance(parent, Function) and parent.name.lower() in _NUMERIC


def beyond_double(call: Node) -> list[Expression]:
    """The numbers that a call is compared with and that a DOUBLE may not represent exactly."""
    others = _compared_with(*_place(call)) or []
    return others if any(_digits(other) > _EXACT_DIGITS for other in others) else []


def _place(call: Node) -> tuple[Node, Node | None]:
    """(the outermost node with the call's value, the node that uses it)."""
    node, parent = call, call.parent
    while parent is not None and _passes_value(node, parent):
        node, parent = parent, parent.parent
    if isinstance(parent, Argument):
        return node, parent.parent
    if isinstance(parent, Ordered):  # WITHIN GROUP (ORDER BY value)
        order = parent.parent
        function = order if isinstance(order, Function) else order and order.parent
        is_its_value = isinstance(function, Function) and len(function.arguments) < 2
        return node, function if is_its_value else parent
    return node, parent


def _passes_value(node: Node, parent: Node) -> bool:
    """Whether the value of `parent` is the value of `node`, as in COALESCE(LLM(...), 0)."""
    if isinstance(parent, When):
        return node.place == "then_expr"
    if isinstance(parent, Case):
        return True
    if isinstance(parent, Operator):
        return parent.kind == "OPERATOR_COALESCE"
    if isinstance(parent, Argument) and isinstance(parent.parent, Function):
        return parent.parent.name == "if" and parent.index > 0
    return isinstance(parent, Function) and parent.name == "if"


def _compared_with(node: Node, parent: Node | None) -> list[Expression] | None:
    """What a value is compared with; None if it is not compared."""
    if isinstance(parent, Comparison):
        sides = [parent.left, parent.right]
    elif isinstance(parent, Between):
        sides = [parent.value, parent.lower, parent.upper]
    elif isinstance(parent, Operator) and parent.kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        sides = parent.operands
    else:
        return None
    return [other for other in sides if other is not node]


def _is_number(node: Node) -> bool:
    value = literal_of(node)
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _digits(number: Node) -> int:
    """The number of digits that a number is written with; 0 if it is written as a DOUBLE."""
    found = number.find(Constant, Parameter)
    text = str(literal_of(found)) if isinstance(found, Parameter) else ""
    text = found.text.lower() if isinstance(found, Constant) else text
    return 0 if "e" in text else sum(map(str.isdigit, text.lstrip("-0.")))
