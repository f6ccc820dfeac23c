"""Parses LLM(...) calls from a query's tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from relquery.errors import QueryError, unknown
from relquery.prompt import Sampling
from relquery.sql.read.source import to_sql

_EXAMPLE = "LLM('prompt', column, ...)"
_LABELS = "labels := ['Yes', 'No']."
# The types accepted for each option. Options are fields of Sampling.
OPTIONS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "seed": (int,),
    "stop": (str,),
    "labels": (str,),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One LLM call as written. `fields` are expressions and stars, in the order given."""

    prompt: str
    fields: tuple[exp.Expr, ...]
    sampling: Sampling


def read_call(node: exp.Anonymous, text: str, defaults: Sampling) -> Call:
    """Check and parse a call. Raises QueryError if something is missing or has the wrong type."""
    arguments = node.expressions
    given = [argument for argument in arguments if _option_name(argument) is None]
    if not given:
        raise QueryError(f"{_short(text)} has no prompt. Expected {_EXAMPLE}.")
    prompt = _literal_text(given[0])
    if prompt is None:
        raise QueryError(_not_a_prompt(given[0], text))
    options: dict[str, Any] = {}
    for argument in arguments:
        if _option_name(argument) is not None:
            name, value = _read_option(argument, text)
            if name in options:
                raise QueryError(f"{_short(text)} sets {name} twice. Set it once.")
            options[name] = value
    return Call(prompt, tuple(given[1:]), replace(defaults, **options))


def _literal_text(node: exp.Expr) -> str | None:
    """The text of a string literal, or of several joined with ||."""
    if isinstance(node, exp.Paren):
        return _literal_text(node.this)
    if isinstance(node, exp.DPipe):
        left, right = _literal_text(node.this), _literal_text(node.expression)
        return None if left is None or right is None else left + right
    if isinstance(node, exp.Literal | exp.ByteString | exp.RawString):
        is_text = not isinstance(node, exp.Literal) or node.is_string
        return str(node.this) if is_text else None
    return None


def _not_a_prompt(node: exp.Expr, text: str) -> str:
    got = to_sql(node)
    message = f"The prompt of {_short(text)} is {got}; it must be a string literal: {_EXAMPLE}."
    if isinstance(node, exp.Column) and node.this.args.get("quoted"):
        return f"{message} SQL strings use single quotes; double quotes name a column."
    return f"{message} Pass values that differ by row as fields after the prompt."


def _option_name(node: exp.Expr) -> str | None:
    if isinstance(node, exp.PropertyEQ | exp.Kwarg):
        return str(node.this.name).lower()
    return None


def _read_option(node: exp.Expr, text: str) -> tuple[str, Any]:
    """(field of Sampling, value)."""
    name = _option_name(node) or ""
    if name not in OPTIONS:
        raise QueryError(f"{_short(text)}: " + unknown("option", name, OPTIONS))
    value = _literal(node.expression)
    wanted = OPTIONS[name]
    if name in ("stop", "labels"):
        if name == "labels" and isinstance(value, str):
            raise QueryError(f"labels of {_short(text)} is {value!r}; it must be a list: {_LABELS}")
        value = (value,) if isinstance(value, str) else value
        if name == "labels" and isinstance(value, tuple):
            value = tuple(str(item) if isinstance(item, int) else item for item in value)
            if not value:
                raise QueryError(f"{_short(text)} has no labels. Give at least one text: {_LABELS}")
        correct = isinstance(value, tuple) and all(isinstance(item, wanted) for item in value)
        expected = "a string or a list of strings, e.g. ['Yes', 'No']"
    else:
        correct = isinstance(value, wanted)
        expected = "a number" if float in wanted else "a whole number"
    if not correct:
        got = to_sql(node.expression)
        raise QueryError(f"{name} of {_short(text)} is {got}; expected {expected}.")
    return name, value


def _literal(node: exp.Expr) -> Any:
    """The Python value of a literal; None for anything else."""
    if isinstance(node, exp.Array):
        return tuple(_literal(item) for item in node.expressions)
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, exp.Literal) and not node.is_string:
        return int(node.this) if node.this.isdigit() else float(node.this)
    return _literal_text(node)


def _short(text: str) -> str:
    call = " ".join(text.split())
    return call if len(call) <= 60 else f"{call[:57]}..."
