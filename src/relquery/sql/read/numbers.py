"""Finds where SQL needs a number from an LLM call without saying which type."""

from __future__ import annotations

from sqlglot import exp

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Pow)
_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Between,
    exp.In,
)
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
_EXACT_DIGITS = 15  # decimal digits that a DOUBLE preserves


def needs_number(call: exp.Expr) -> bool:
    """Whether a call is used where the query needs a number rather than text.

    That is directly inside a numeric aggregate or function, an arithmetic operator, or a
    comparison with numbers. A cast names its type itself.
    """
    node, parent = _place(call)
    if isinstance(parent, exp.Anonymous):
        return str(parent.this).lower() in _NUMERIC_NAMES
    if (others := _compared_with(node, parent)) is not None:
        return bool(others) and all(map(_is_number, others))
    return isinstance(parent, (*_ARITHMETIC, *_NUMERIC_FUNCTIONS))


def beyond_double(call: exp.Expr) -> list[exp.Expr]:
    """The numbers that a call is compared with and that a DOUBLE may not represent exactly."""
    others = _compared_with(*_place(call)) or []
    return others if any(_digits(other) > _EXACT_DIGITS for other in others) else []


def _place(call: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """(the outermost node with the call's value, the node that uses it)."""
    node, parent = call, call.parent
    while parent is not None and _passes_value(node, parent):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Ordered):
        whole = parent.parent.parent if parent.parent is not None else None
        return node, whole.this if isinstance(whole, exp.WithinGroup) else parent
    return node, parent


def _passes_value(node: exp.Expr, parent: exp.Expr) -> bool:
    """Whether the value of `parent` is the value of `node`, as in COALESCE(LLM(...), 0)."""
    if isinstance(parent, exp.If | exp.Case):
        return node.arg_key in ("true", "false", "default", "ifs")
    return isinstance(parent, exp.Paren | exp.Distinct | exp.Coalesce | exp.Filter)


def _compared_with(node: exp.Expr, parent: exp.Expr | None) -> list[exp.Expr] | None:
    """What a value is compared with; None if it is not compared."""
    if isinstance(parent, exp.Case) and node.arg_key == "this":
        return [branch.this for branch in parent.args["ifs"]]
    if isinstance(parent, _COMPARISONS):
        return [other for other in parent.iter_expressions() if other is not node]
    return None


def _is_number(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_number(node.this)
    return isinstance(node, exp.Literal) and not node.is_string


def _digits(number: exp.Expr) -> int:
    """The number of digits that a number is written with; 0 if it is written as a DOUBLE."""
    text = str(number.find(exp.Literal) or "").lower()
    return 0 if "e" in text else sum(map(str.isdigit, text.lstrip("0.")))
