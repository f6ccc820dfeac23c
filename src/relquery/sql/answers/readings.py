"""How a text becomes a value of another type: one rule wherever an answer is cast.

The text, without white space or a code fence around it, is cast as DuckDB's TRY_CAST does it: NULL
where it is no value of the type. A number must be written in decimal (-1.5, 1e3) and lie in the
type's range, so that NaN, inf, 0x1F and 1_000 are none. Types that hold any text keep all of it.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.source import DIALECT

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
_NUMBERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "BIGNUM",
    "FLOAT",
    "DOUBLE",
}
_ANY_TEXT = ("VARCHAR", "BLOB", "VARIANT", "UNION(")


def install(database: Database) -> None:
    """Create the functions that readings call."""
    for name, body in _MACROS.items():
        database.execute(f"CREATE OR REPLACE TEMP MACRO {name}(answer) AS {body}")


def is_number(kind: str) -> bool:
    """Whether a type, named as DuckDB does, is one of numbers."""
    return kind in _NUMBERS or kind.startswith("DECIMAL(")


def reading(text: exp.Expr, kind: str, to: exp.DataType | None = None) -> exp.Expr:
    """A text as a value of a type; NULL if it is none.

    kind: the type as DuckDB names it. to: the same as written, if it was.
    """
    to = exp.DataType.build(kind, dialect=DIALECT, udt=True) if to is None else to
    if is_number(kind):
        value: exp.Expr = exp.TryCast(this=_macro(ours.DECIMAL, text), to=to)
        return _macro(ours.FINITE, value) if kind in ("FLOAT", "DOUBLE") else value
    if not kind.startswith(_ANY_TEXT):
        text = _macro(ours.TRIMMED, text)
    return exp.TryCast(this=text, to=to)


def text_of(value: exp.Expr) -> exp.Expr:
    """What a cast reads that `reading` gave, or a plain TRY_CAST."""
    inner = value.expressions[0].this if is_macro(value) else value.this
    found: exp.Expr = inner.expressions[0] if is_macro(inner) else inner
    return found


def is_macro(node: exp.Expr) -> bool:
    """Whether a node calls one of the functions that readings call."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _MACROS


def _macro(name: str, argument: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument])
