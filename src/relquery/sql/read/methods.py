"""Method calls such as `title.upper()`, whose columns the parser leaves as plain identifiers.

title.upper()  =>  the function upper applied to the column title
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.read.binding import is_variable
from relquery.sql.read.from_clause import Sources

# Nodes in which an identifier defines a name and is not a value.
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
    """Turn the identifiers in method calls into columns, in place.

    The name before a dot may also be a schema with a function. It is left unchanged unless the
    FROM clause or the select list has that name.
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
    """The whole node `a.b.c` for its identifier `a`."""
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
