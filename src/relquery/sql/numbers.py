"""Where SQL needs a number of an LLM call, and how an answer becomes one."""

from __future__ import annotations

import re

from sqlglot import exp

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Pow)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_NUMERIC_FUNCTIONS = (
    exp.Avg,
    exp.Sum,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
    exp.Median,
    exp.Quantile,
    exp.PercentileCont,
    exp.PercentileDisc,
    exp.Corr,
    exp.CovarPop,
    exp.CovarSamp,
    exp.Abs,
    exp.Round,
    exp.Floor,
    exp.Ceil,
    exp.Sqrt,
    exp.Exp,
    exp.Ln,
    exp.Log,
    exp.Sign,
)
_NUMERIC_NAMES = {
    "mean",
    "favg",
    "fsum",
    "sumkahan",
    "kahan_sum",
    "product",
    "geomean",
    "geometric_mean",
    "mad",
    "skewness",
    "kurtosis",
    "kurtosis_pop",
    "sem",
    "quantile_cont",
    "quantile_disc",
    "stddev_pop",
    "stddev_samp",
    "var_pop",
    "var_samp",
    "trunc",
}


def needs_number(call: exp.Expr) -> bool:
    """Whether the place of a call in its query takes a number and no text.

    That is: directly inside a numeric aggregate or function, an arithmetic operator, a cast to a
    numeric type, or a comparison with a number.
    """
    node, parent = call, call.parent
    while parent is not None and _passes_value(node, parent):
        node, parent = parent, parent.parent
    match parent:
        case exp.Anonymous():
            return str(parent.this).lower() in _NUMERIC_NAMES
        case exp.TryCast():
            return False
        case exp.Cast():
            return bool(parent.to.is_type(*exp.DataType.NUMERIC_TYPES))
        case _ if isinstance(parent, _COMPARISONS):
            others = [other for other in parent.iter_expressions() if other is not node]
            return bool(others) and all(_is_number(other) for other in others)
    return isinstance(parent, (*_ARITHMETIC, *_NUMERIC_FUNCTIONS))


def _passes_value(node: exp.Expr, parent: exp.Expr) -> bool:
    """Whether the value of `parent` is the value of `node`, as in COALESCE(LLM(...), 0)."""
    if isinstance(parent, exp.If | exp.Case):
        return node.arg_key in ("true", "false", "default", "ifs")
    return isinstance(parent, exp.Paren | exp.Distinct | exp.Coalesce | exp.Filter)


def parse_number(text: str) -> float | None:
    """The number that an answer is, None if it is anything more or less than one number."""
    stripped = text.strip()
    return float(stripped) if _NUMBER.fullmatch(stripped) else None


def _is_number(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_number(node.this)
    return isinstance(node, exp.Literal) and not node.is_string
