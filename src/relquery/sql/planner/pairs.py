"""Calls about two texts: the order in which the two are sent, and the order of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.plan import Field, PlannedCall

_LESS = "COMPARE_LESSTHAN"


def pair_of(fields: tuple[Field, ...], call: str, is_symmetric: bool) -> tuple[Field, ...]:
    """The two fields of a call. If they may change places, the lesser value is the first:

    AI_FILTER('...', a, b, pairs := 'symmetric')
    => AI_FILTER('...', CASE WHEN b < a THEN b ELSE a END, CASE WHEN b < a THEN a ELSE b END)

    so (a, b) and (b, a) are equal inputs; NULL counts as less than all others. call: as written.
    Raises QueryError for other fields.
    """
    if len(fields) != 2:
        raise QueryError(
            f"{call} sets pairs, which needs two fields, the texts of a pair. It has "
            f"{len(fields)}. Give two, or remove pairs."
        )
    if not is_symmetric:
        return fields
    first, second = fields
    is_null = build.operation("OPERATOR_IS_NULL", second.value.copy())
    swaps = build.any_of([build.compared(_LESS, second.value, first.value), is_null])
    values = (
        build.when(swaps.copy(), left.value.copy(), other.value.copy())
        for left, other in ((second, first), (first, second))
    )
    return tuple(
        replace(field, value=value, source=None, column="")
        for field, value in zip(fields, values, strict=True)
    )


def together(calls: Iterable[PlannedCall]) -> list[tree.Ordered]:
    """A key of ORDER BY by which rows of equal pairs follow each other; none without such a call.

    A join has no order of its own. So a LIMIT is reached with the fewest calls.
    """
    fields = next((call.fields for call in calls if call.task.is_symmetric), None)
    if fields is None:
        return []
    pairs: list[Expression] = [field.value.copy() for field in fields]
    row = tree.Argument(expression=build.column(ours.ROW))
    window = tree.Window(
        type="WINDOW_AGGREGATE",
        function_name="min",
        arguments=[row],
        partitions=pairs,
        start="UNBOUNDED_PRECEDING",
        end="CURRENT_ROW_RANGE",
    )
    return [build.ordered(window)]
