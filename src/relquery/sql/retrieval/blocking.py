"""What conditions by AI_SIMILARITY leave out, so that EXPLAIN can tell (blocking)."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.sql import names as ours


def without_similarity(select: exp.Select) -> exp.Select | None:
    """The same rows and those that conditions by AI_SIMILARITY leave out.

    None if its WHERE and its inner joins have no such condition.
    """
    whole = select.copy()
    found = [node for node in _conditions(whole) if _drop(node)]
    return whole if found else None


def _conditions(select: exp.Select) -> Iterator[tuple[exp.Expr, str]]:
    """(node, the argument of it that is a condition)."""
    if (where := select.args.get("where")) is not None:
        yield where, "this"
    for join in select.args.get("joins") or ():
        if join.args.get("on") is not None and not join.side and join.kind in ("", "INNER"):
            yield join, "on"


def _drop(place: tuple[exp.Expr, str]) -> bool:
    node, name = place
    parts = list(node.args[name].flatten()) if isinstance(node.args[name], exp.And) else []
    parts = parts or [node.args[name]]
    kept = [part for part in parts if not any(map(_is_similarity, part.find_all(exp.Func)))]
    if len(kept) < len(parts):
        node.set(name, exp.and_(*kept) if kept else exp.true())
    return len(kept) < len(parts)


def _is_similarity(call: exp.Func) -> bool:
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
    return name.lower() == ours.SIMILARITY  # sqlglot knows this function
