"""What conditions by AI_SIMILARITY leave out, so that EXPLAIN can tell (blocking)."""

from __future__ import annotations

from collections.abc import Iterator

from relquery.sql import names as ours
from relquery.sql.binder.sources import joins_in
from relquery.sql.parser import build
from relquery.sql.parser.tree import Function, Node, Select


def without_similarity(select: Select) -> Select | None:
    """The same rows and those that conditions by AI_SIMILARITY leave out.

    None if its WHERE and its inner joins have no such condition.
    """
    whole = select.copy()
    found = [node for node, key in _conditions(whole) if _drop(node, key)]
    return whole if found else None


def _conditions(select: Select) -> Iterator[tuple[Node, str]]:
    """(node, the argument of it that is a condition)."""
    if select.where is not None:
        yield select, "where_clause"
    for join in joins_in(select.source):
        if join.condition is not None and join.kind == "INNER":
            yield join, "condition"


def _drop(node: Node, key: str) -> bool:
    parts = build.conjuncts(node.args[key])
    kept = [part for part in parts if not any(map(_is_similarity, part.find_all(Function)))]
    if len(kept) < len(parts):
        node.set(key, build.all_of(kept))
    return len(kept) < len(parts)


def _is_similarity(call: Function) -> bool:
    return call.name.lower() == ours.SIMILARITY
