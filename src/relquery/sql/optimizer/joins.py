"""Join conditions with calls: they move to WHERE where this keeps their meaning.

FROM a JOIN b ON LLM(...) = 'Yes'  =>  FROM a JOIN b ON true WHERE LLM(...) = 'Yes'

The others are answered beforehand; see optimizer.join_conditions.
"""

from __future__ import annotations

from collections.abc import Iterator

from relquery.errors import UnsupportedQueryError
from relquery.sql.binder.call import has_call
from relquery.sql.binder.sources import joins_in
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression, Join, Select, Source


def take_conditions(select: Select) -> Select:
    """A SELECT without calls in its join conditions."""
    select = select.copy()
    taken: list[Expression] = []
    for join in list(joins_in(select.source)):
        if has_call(join.condition) and may_move(join):
            parts = build.conjuncts(join.condition)
            plain = [part for part in parts if not has_call(part)]
            taken += [part for part in parts if has_call(part)]
            join.condition = build.all_of(plain)
    if taken:
        build.add_where(select, *taken)
    return select


def may_move(join: Join) -> bool:
    """Whether WHERE can take the condition of a join: it and the joins around it only drop rows
    that do not meet it."""
    return is_inner(join) and not any(adds_rows(outer, side) for side, outer in joins_around(join))


def joins_around(source: Source) -> Iterator[tuple[Source, Join]]:
    """The joins around a table or a join, from the inside out, each with its side that has it."""
    while isinstance(join := source.parent, Join):
        yield source, join
        source = join


def is_inner(join: Join) -> bool:
    """Whether a join with a condition is an inner one."""
    return join.kind == "INNER" and join.method in ("REGULAR", "CROSS", "NATURAL")


def adds_rows(join: Join, side: Source) -> bool:
    """Whether a join adds rows without a match on one of its sides, or joins by position."""
    if join.method == "POSITIONAL" or join.kind == "FULL":
        return True
    if side.place == "left":
        return join.kind == "RIGHT"
    return join.kind in ("LEFT", "SEMI", "ANTI") or join.method == "ASOF"


def check_condition(join: Join) -> None:
    """Raises UnsupportedQueryError for a call in the condition of a join that cannot have one."""
    if has_call(join.condition) and join.method in ("ASOF", "POSITIONAL"):
        article = "an ASOF" if join.method == "ASOF" else "a POSITIONAL"
        raise UnsupportedQueryError(
            f"An LLM call is in the ON clause of {article} join, which cannot have one. Join on "
            "the other conditions in a subquery and call LLM on its rows."
        )
