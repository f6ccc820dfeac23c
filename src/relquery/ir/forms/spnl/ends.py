"""Values from Python code may contain themselves, or share one part in very many places."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from relquery.ir.forms.spnl.fields import Spot

MAX_NODES = 2_000_000  # of a query in wire form
_Steps = Iterator[tuple[Any, Any]]


def check_ends(value: object, operators: Container[str], most: int) -> None:
    """Raise QueryError for a value that contains itself, or that has more than `most` operators.

    An operator counts each time it occurs, but is only examined once.
    """
    sizes: dict[int, int] = {}
    path: list[tuple[object, Spot, _Steps]] = []
    inside: set[int] = set()

    def enter(part: object, spot: Spot) -> None:
        if id(part) in inside:
            raise spot.error("the value contains itself here; a query must be a tree.")
        path.append((part, spot, _steps(part)))
        inside.add(id(part))

    enter(value, Spot())
    while path:
        part, spot, steps = path[-1]
        for step, below in steps:
            if _holds(below) and id(below) not in sizes:
                enter(below, spot / (step if isinstance(step, int) else str(step)))
                break
        else:
            path.pop()
            inside.remove(id(part))
            below = sum(sizes.get(id(below), 0) for _, below in _steps(part))
            sizes[id(part)] = below + _is_operator(part, operators)
            check_count(sizes[id(part)], most, spot)


def check_count(count: int, most: int, spot: Spot) -> None:
    """Raise QueryError for more than `most` nodes."""
    if count > most:
        raise spot.error(
            f"the query has more than {most:,} nodes. Repeat less, or use several queries."
        )


def _is_operator(value: object, operators: Container[str]) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in operators


def _holds(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _steps(value: object) -> _Steps:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list | tuple) else iter(())
