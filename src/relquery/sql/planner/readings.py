"""How text becomes a value of another type. One rule applies wherever an answer is cast.

Surrounding white space and a code fence are removed, then DuckDB's TRY_CAST applies: the result is
NULL if the text is not a valid value of the type. A number must be decimal (-1.5, 1e3) and within
the type's range; NaN, inf, 0x1F and 1_000 are rejected. Types that take any text keep all of it.
"""

from __future__ import annotations

from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Cast, Expression, Function, Node, Operator
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


def reading(text: Expression, kind: str, to: Node | None = None) -> Expression:
    """Convert text to a type; NULL if the text is not a valid value of it.

    kind: the type as DuckDB names it. to: the type as written in the query, if it was written.
    """
    to = parser().type(kind) if to is None else to
    if is_number(kind):
        value = build.cast(build.function(ours.DECIMAL, text), to, is_try=True)
        return build.function(ours.FINITE, value) if kind in ("FLOAT", "DOUBLE") else value
    if not kind.startswith(_ANY_TEXT):
        text = build.function(ours.TRIMMED, text)
    if is_nested(kind):  # TRY_CAST would give NULL for a bad item alone
        return build.operation(build.TRY, build.cast(text, to))
    return build.cast(text, to, is_try=True)


def is_nested(kind: str) -> bool:
    """Whether values of a type have items or fields."""
    return kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))


def text_of(value: Node) -> Expression:
    """The text inside a cast made by `reading`, or inside a plain TRY_CAST."""
    if isinstance(value, Function) and is_macro(value):
        value = value.values[0]
    if isinstance(value, Operator):
        value = value.operands[0]
    assert isinstance(value, Cast)
    inner = value.value
    return inner.values[0] if isinstance(inner, Function) and is_macro(inner) else inner


def is_macro(node: Node) -> bool:
    """Whether a node calls one of the macros in `_MACROS`."""
    return isinstance(node, Function) and node.name.lower() in _MACROS
