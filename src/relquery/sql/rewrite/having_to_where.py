"""Conditions on the keys of groups drop rows before their calls are made.

SELECT genre, max(LLM('...', title)) FROM films GROUP BY genre HAVING genre > 'd'
=> SELECT genre, max(LLM('...', title)) FROM films WHERE genre > 'd' GROUP BY genre
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.form.groups import Texts, keys_of
from relquery.sql.form.normalize import conjuncts, has_grouping_sets
from relquery.sql.read.scopes import calls_directly, has_call
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.safe import never_fails


def having_to_where(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`."""
    for select in list(tree.find_all(exp.Select)):
        having = select.args.get("having")
        if having is None or not calls_directly(select) or not _has_plain_group(select):
            continue
        written, moved = conjuncts(having.this), _about_keys(select, lookup)
        if not moved:
            continue
        kept = [part for at, part in enumerate(written) if at not in moved]
        select.where(*moved.values(), copy=False)
        having.pop()
        if kept:
            select.having(*kept, copy=False)
        return tree
    return None


def _has_plain_group(select: exp.Select) -> bool:
    return select.args.get("group") is not None and not has_grouping_sets(select)


def _about_keys(select: exp.Select, lookup: Lookup) -> dict[int, exp.Expr]:
    """The conditions of HAVING that WHERE can compute, by their place."""
    sources, normal = lookup.sources(select), lookup.normal(select)
    if sources is None or normal is None or lookup.aggregates.is_volatile(select):
        return {}
    parts = conjuncts(normal.args["having"].this)
    if len(parts) != len(conjuncts(select.args["having"].this)):
        return {}
    texts = Texts(sources)
    keys = {texts.text(key) for key in keys_of(normal, lookup.aggregates) if not has_call(key)}
    where = select.args.get("where")
    must_not_fail = where is not None and has_call(where)
    kinds = lookup.kinds(select)
    return {
        at: part.copy()
        for at, part in enumerate(parts)
        if part.find(exp.Column)
        and not lookup.aggregates.has_query(part)
        and _reads_only(part, keys, texts)
        and (not must_not_fail or never_fails(part, kinds))
    }


def _reads_only(node: exp.Expr, keys: set[str], texts: Texts) -> bool:
    """Whether an expression reads nothing but keys."""
    if texts.text(node) in keys:
        return True
    if isinstance(node, exp.Column | exp.AggFunc | exp.Anonymous | exp.Window):
        return False
    return all(_reads_only(part, keys, texts) for part in node.iter_expressions())
