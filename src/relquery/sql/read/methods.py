"""Method calls: `title.upper()`, whose columns the parser leaves as mere identifiers.

title.upper()  =>  the function upper of the column title, written after it
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.read.binding import is_variable
from relquery.sql.read.from_clause import Sources

# Where an identifier is a name that is given, and no value.
_NAMING = (
    exp.Alias,
    exp.Column,
    exp.ColumnDef,
    exp.DataType,
    exp.Star,
    exp.Table,
    exp.TableAlias,
)


def restore_columns(select: exp.Select, sources: Sources) -> None:
    """Make columns of the identifiers in method calls, in place.

    What a dot stands behind may also be a schema with a function in it; it is left as it is unless
    the FROM clause or the select list knows the name.
    """
    known = {item.alias.lower() for item in select.expressions if item.alias}
    known |= {alias.lower() for alias in sources.columns}
    methods = [dot for dot in select.find_all(exp.Dot) if isinstance(dot.expression, exp.Func)]
    for method in methods:
        for identifier in list(method.this.find_all(exp.Identifier)):
            if not _is_value(identifier):
                continue
            chain = _chain(identifier)
            name = identifier.name.lower()
            if chain.parent is method and not (sources.has(name) or name in known):
                continue
            chain.replace(_column(chain))


def _is_value(identifier: exp.Identifier) -> bool:
    parent = identifier.parent
    if parent is None or isinstance(parent, _NAMING) or is_variable(identifier):
        return False
    if isinstance(parent, exp.Lambda | exp.Comprehension):
        return identifier.arg_key in ("this", "iterator", "condition")
    if isinstance(parent, exp.PropertyEQ | exp.Kwarg | exp.Dot):
        return (identifier.arg_key == "this") == isinstance(parent, exp.Dot)
    return True


def _chain(identifier: exp.Identifier) -> exp.Expr:
    """`a.b.c` as one node, for its `a`."""
    node: exp.Expr = identifier
    while (
        isinstance(node.parent, exp.Dot)
        and node.arg_key == "this"
        and isinstance(node.parent.expression, exp.Identifier)
    ):
        node = node.parent
    return node


def _column(chain: exp.Expr) -> exp.Expr:
    parts: list[exp.Expr] = []
    while isinstance(chain, exp.Dot):
        parts.insert(0, chain.expression)
        chain = chain.this
    parts.insert(0, chain)
    table = parts[0].copy() if len(parts) > 1 else None
    column = exp.Column(this=parts[min(1, len(parts) - 1)].copy(), table=table)
    return exp.Dot.build([column, *(part.copy() for part in parts[2:])]) if parts[2:] else column
