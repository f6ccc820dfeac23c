"""The verbs about pairs of rows: of two frames, or of one with itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from relquery.errors import ConfigError, QueryError, UnknownColumnError, unknown_value
from relquery.frames.arguments import call, check_names, check_options
from relquery.frames.compile import EARLIER, LATER, LEFT, RIGHT
from relquery.frames.expressions import (
    Field,
    Find,
    check_named,
    find_column,
    has_column,
    read_langex,
)
from relquery.frames.nodes import Blocking, Distinct, How, Join, Near, Node
from relquery.sql.names import quoted, quoted_text

_SIDES = {"left": LEFT, "right": RIGHT}
SAME = "Do {0} and {1} say the same?"
"""What a pair of texts is asked, to confirm that they are duplicates."""


def joined(
    left: Node,
    right: Node,
    instruction: str,
    how: str,
    blocking: tuple[float, int, int] | None,
    options: Mapping[str, Any],
) -> Join:
    """Pairs for which the model says yes. blocking: threshold, size of the sample and its seed."""
    if how not in get_args(How):
        raise ConfigError(unknown_value("how", how, get_args(How), of="sem_join"))
    langex = read_langex(instruction, sides(left, right), verb="sem_join")
    check_named(langex, instruction, "sem_join", left.columns)
    given = check_options(options, "sem_join", "classify")
    asked = call("AI_FILTER", [quoted_text(langex.claim.prompt)], langex.fields, given)
    of_left, of_right = _by_side(langex.fields, instruction)
    near = None if blocking is None else Blocking(_whole(of_left), _whole(of_right), *blocking)
    names = _names(left, right) if how in ("inner", "left") else _of_side(left, LEFT)
    check_names([name for name, _ in names], "sem_join")
    return Join(left, right, how, asked, near, names)  # type: ignore[arg-type]


def _by_side(fields: Sequence[Field], instruction: str) -> tuple[list[Field], list[Field]]:
    """Fields of the left and of the right. Raises ConfigError if a side has none, as all pairs of
    a row would get one answer.
    """
    of_left, of_right = (
        [field for field in fields if field.sql.startswith(f"{side}.")] for side in (LEFT, RIGHT)
    )
    if not of_left or not of_right:
        raise ConfigError(
            f"The instruction of sem_join, {instruction!r}, names columns of one side only. Name "
            "one of each, e.g. {a:left} and {b:right}; to ask about one frame, use sem_filter."
        )
    return of_left, of_right


def nearest(left: Node, right: Node, left_on: str, right_on: str, count: int, score: str) -> Near:
    """Each row of the left with the rows of the right whose texts are nearest."""
    one = find_column(left_on, left.columns, "the left frame")
    other = find_column(right_on, right.columns, "the right frame")
    names = _names(left, right)
    check_names([*(name for name, _ in names), score], "sem_sim_join")
    return Near(left, right, one, other, count, names, score)


def distinct(
    node: Node, column: str, threshold: float, ask: bool | str, options: Mapping[str, Any]
) -> Distinct:
    """The first row of each group of near-duplicates. ask: whether the model confirms pairs."""
    name = find_column(column, node.columns)
    given = check_options(options, "sem_dedup")
    if not ask:
        return Distinct(node, name, threshold, None)
    fields = [Field(name, f"{side}.{quoted(name)}") for side in (EARLIER, LATER)]
    prompt = SAME if ask is True else str(ask)
    return Distinct(node, name, threshold, call("AI_FILTER", [quoted_text(prompt)], fields, given))


def sides(left: Node, right: Node) -> Find:
    """Finds `{title:left}`, `{title:right}`, or a column that only one of two frames has."""

    both = list(dict.fromkeys((*left.columns, *right.columns)))

    def find(name: str) -> Field:
        column, colon, side = name.rpartition(":")
        which = side.strip().lower()
        if colon and which in _SIDES:
            node = left if which == "left" else right
            # Else it may be the whole name of a column that another join has made.
            if has_column(column, node.columns) or not has_column(name, both):
                return _field(column, node, which)
        found = []
        for which, node in (("left", left), ("right", right)):
            try:
                found.append(_field(name, node, which))
            except UnknownColumnError:
                continue
        if len(found) == 2:
            raise QueryError(
                f"Both frames have the column '{name}'. Write {{{name}:left}} or {{{name}:right}}."
            )
        if not found and colon and has_column(column, both):
            raise QueryError(
                f"'{{{name}}}' names the side {side!r}, which must be left or right: "
                f"{{{column}:left}} or {{{column}:right}}."
            )
        if not found:
            raise UnknownColumnError(name, "either frame", both)
        return found[0]

    return find


def _field(name: str, node: Node, side: str) -> Field:
    column = find_column(name, node.columns, f"the {side} frame")
    return Field(column, f"{_SIDES[side]}.{quoted(column)}")


def _names(left: Node, right: Node) -> tuple[tuple[str, Field], ...]:
    """Columns of both sides; those that both have get `:left` and `:right`, as LOTUS has them."""
    lower = [{name.lower() for name in node.columns} for node in (left, right)]
    both = lower[0] & lower[1]
    return tuple(
        (f"{name}:{side}" if name.lower() in both else name, _field(name, node, side))
        for side, node in (("left", left), ("right", right))
        for name in node.columns
    )


def _of_side(node: Node, side: str) -> tuple[tuple[str, Field], ...]:
    return tuple((name, Field(name, f"{side}.{quoted(name)}")) for name in node.columns)


def _whole(fields: Sequence[Field]) -> str:
    """SQL of the texts of some fields as one text."""
    columns = [field.sql for field in fields]
    return columns[0] if len(columns) == 1 else f"concat_ws(' ', {', '.join(columns)})"
