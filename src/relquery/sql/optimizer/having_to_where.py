"""Conditions on the keys of groups drop rows before their calls are made.

SELECT genre, max(LLM('...', title)) FROM films GROUP BY genre HAVING genre > 'd'
=> SELECT genre, max(LLM('...', title)) FROM films WHERE genre > 'd' GROUP BY genre
"""

from __future__ import annotations

from relquery.sql.binder.call import Call, has_call
from relquery.sql.binder.normalize import has_grouping_sets, keys_of
from relquery.sql.binder.sources import Sources, canonical
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import asks
from relquery.sql.optimizer.safe import never_fails
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Function,
    Node,
    Operator,
    Position,
    Query,
    Select,
    Star,
    Window,
)


def having_to_where(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`."""
    for select in tree.find_all(Select):
        if select.having is None or has_grouping_sets(select) or not asks(select):
            continue
        written, moved = build.conjuncts(select.having), _about_keys(select, lookup)
        if moved:
            kept = [part for at, part in enumerate(written) if at not in moved]
            build.add_where(select, *moved.values())
            select.having = build.all_of(kept) if kept else None
            return tree
    return None


def _about_keys(select: Select, lookup: Lookup) -> dict[int, Expression]:
    """The conditions of HAVING that WHERE can compute, by their place."""
    functions = lookup.functions
    sources, normal = lookup.sources(select), lookup.normal(select)
    if sources is None or normal is None or functions.is_volatile(select):
        return {}
    parts = build.conjuncts(normal.having)
    keys = {canonical(key, sources) for key in keys_of(normal, functions) if not has_call(key)}
    if not keys or len(parts) != len(build.conjuncts(select.having)):
        return {}
    may_fail, kinds = not has_call(select.where), lookup.kinds(select)
    return {
        at: part.copy()
        for at, part in enumerate(parts)
        if part.find(Column) is not None
        and not functions.has_query(part)
        and _reads_only(part, keys, sources, lookup)
        and (may_fail or never_fails(part, kinds))
    }


def _reads_only(node: Node, keys: set[str], sources: Sources, lookup: Lookup) -> bool:
    """Whether an expression reads nothing but keys."""
    if isinstance(node, Expression) and canonical(node, sources) in keys:
        return True
    if isinstance(node, Column | Call | Position | Star | Window):
        return False
    if isinstance(node, Operator) and node.kind == "GROUPING_FUNCTION":
        return False
    if isinstance(node, Function) and (node.schema or _may_fold(node, lookup)):
        return False
    return all(_reads_only(part, keys, sources, lookup) for part in node.children())


def _may_fold(node: Function, lookup: Lookup) -> bool:
    """Whether a function is an aggregate, or a macro that may have one."""
    return lookup.functions.is_aggregate(node) or node.name.lower() in lookup.functions.macros
