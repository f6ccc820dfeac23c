"""Outer joins become narrower where WHERE drops the rows that have no match on a side.

SELECT ... FROM f LEFT JOIN (SELECT id, LLM('...', text) AS a FROM t) AS x ON ... WHERE x.id = 1
=> SELECT ... FROM f JOIN (SELECT id, LLM('...', text) AS a FROM t) AS x ON ... WHERE x.id = 1
"""

from __future__ import annotations

from relquery.sql.binder.sources import joins_in, leaves
from relquery.sql.optimizer.reads import Lookup, asks, joins_around, restored
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Comparison, Constant, Expression, Query, Select

_NARROWER = {
    ("FULL", "left"): "LEFT",
    ("FULL", "right"): "RIGHT",
    ("LEFT", "right"): "INNER",
    ("RIGHT", "left"): "INNER",
}
"""What a join is without the rows that have NULL in the columns of a side."""


def narrow_outer_joins(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    for select in statement.find_all(Select):
        joins = [one for one in joins_in(select.source) if asks(one) and one.method == "REGULAR"]
        sources = lookup.sources(select) if joins and select.where is not None else None
        if sources is None or select.sample is not None:
            continue
        conditions = [restored(one, sources) for one in build.conjuncts(select.where)]
        read = (one for part in conditions if rejects_null(part) for one in part.find_all(Column))
        given = {found[0].lower() for one in read if (found := sources.resolve(one)) is not None}
        for join in joins:
            for side in (join.left, join.right):
                kind = _NARROWER.get((join.kind, side.place))
                is_same = not join.using or join.kind == "LEFT"  # what USING merges
                by_pairs = all(one.method in ("REGULAR", "CROSS") for _, one in joins_around(join))
                named = {leaf.name.lower() for leaf in leaves(side)}
                if kind is not None and is_same and by_pairs and named & given:
                    join.kind = kind
                    return True
    return False


def rejects_null(condition: Expression) -> bool:
    """Whether a condition is surely not true where a column of it is NULL."""
    plain = isinstance(condition, Comparison) and "DISTINCT" not in condition.kind
    return plain and all(isinstance(one, Column | Constant) for one in condition.children())
