"""How text becomes a value of another type. One rule applies wherever an answer is cast.

Surrounding white space and a code fence are removed, then DuckDB's TRY_CAST applies: the result is
NULL if the text is not a valid value of the type. A number must be decimal (-1.5, 1e3) and within
the type's range; NaN, inf, 0x1F and 1_000 are rejected. Types that take any text keep all of it.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.source import DIALECT
from relquery.sql.types.leaves import NUMBERS

_FENCED = r"^\s*```(?:[\w+-]*\n)?([^`]*)```\s*$"
_MACROS = {
    ours.TRIMMED: (
        rf"trim(coalesce(nullif(regexp_extract(answer, '{_FENCED}', 1), ''), answer), "
        r"e' \t\n\r\f\x0b')"
    ),
    ours.DECIMAL: (
        f"CASE WHEN regexp_full_match({ours.TRIMMED}(answer), "
        r"'[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?') "
        f"THEN {ours.TRIMMED}(answer) END"
    ),
    ours.FINITE: "CASE WHEN isfinite(answer) THEN answer END",
}
_ANY_TEXT = ("VARCHAR", "BLOB", "VARIANT", "UNION(")


def install(database: Database) -> None:
    """Create the macros that readings call."""
    for name, body in _MACROS.items():
        database.execute(f"CREATE OR REPLACE TEMP MACRO {name}(answer) AS {body}")


def is_number(kind: str) -> bool:
    """Whether a type, as DuckDB names it, is numeric."""
    return kind in (*NUMBERS, "BIGNUM") or kind.startswith("DECIMAL(")


def reading(text: exp.Expr, kind: str, to: exp.DataType | None = None) -> exp.Expr:
    """Convert text to a type; NULL if the text is not a valid value of it.

    kind: the type as DuckDB names it. to: the type as written in the query, if it was written.
    """
    to = exp.DataType.build(kind, dialect=DIALECT, udt=True) if to is None else to
    if is_number(kind):
        value: exp.Expr = exp.TryCast(this=_macro(ours.DECIMAL, text), to=to)
        return _macro(ours.FINITE, value) if kind in ("FLOAT", "DOUBLE") else value
    if not kind.startswith(_ANY_TEXT):
        text = _macro(ours.TRIMMED, text)
    if is_nested(kind):  # TRY_CAST would give NULL for a bad item alone
        return exp.Try(this=exp.Cast(this=text, to=to))
    return exp.TryCast(this=text, to=to)


def is_nested(kind: str) -> bool:
    """Whether values of a type have items or fields."""
    return kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))


def text_of(value: exp.Expr) -> exp.Expr:
    """The text inside a cast made by `reading`, or inside a plain TRY_CAST."""
    inner = value.expressions[0].this if is_macro(value) else value.this
    inner = inner.this if isinstance(value, exp.Try) else inner
    found: exp.Expr = inner.expressions[0] if is_macro(inner) else inner
    return found


def is_macro(node: exp.Expr) -> bool:
    """Whether a node calls one of the macros in `_MACROS`."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _MACROS


def _macro(name: str, argument: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument])
