"""Functional dependencies: columns whose values determine the values of other columns.

A dependency is one-way. Columns that determine each other, such as an id and a name, have two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Bools
from relquery.errors import ConfigError, UnknownColumnError

ONE_WAY, TWO_WAY = "->", "<->"


@dataclass(frozen=True, slots=True)
class Dependency:
    """Rows that agree in all determinants agree in all dependents.

    Raises ConfigError for an empty side, and for a column named twice.
    """

    determinants: tuple[str, ...]
    dependents: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.determinants or not self.dependents:
            raise ConfigError(
                f"Dependency '{self}' has an empty side. Give columns on both, e.g. 'id -> name'."
            )
        for name in self.names:
            if not name:
                raise _unreadable(str(self), "has an empty column name")
            if self.names.count(name) > 1:
                raise ConfigError(
                    f"Dependency '{self}' names column '{name}' twice. Name each column once."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Determinants, then dependents."""
        return self.determinants + self.dependents

    def __str__(self) -> str:
        return f"{', '.join(self.determinants)} {ONE_WAY} {', '.join(self.dependents)}"


def parse_dependency(given: str | Sequence[str] | Dependency) -> tuple[Dependency, ...]:
    """Parse the user's input into one-way dependencies.

    "a, b -> c, d" is one-way, "a <-> b" two-way. "a, b" without an arrow is a group, and so is a
    sequence of names, which may contain commas or arrows. Each column of a group determines every
    other (paper 000, §4.2.1).

    Raises ConfigError for an empty side or name, a single name, or two arrows.
    """
    if isinstance(given, Dependency):
        return (given,)
    if isinstance(given, bytes) or not isinstance(given, str | Sequence):
        raise _unreadable(repr(given), "is not text or a list of names")
    if not isinstance(given, str):
        return _group(tuple(given), ", ".join(map(str, given)))
    arrow = TWO_WAY if TWO_WAY in given else ONE_WAY
    sides = [tuple(map(str.strip, side.split(","))) for side in given.split(arrow)]
    if len(sides) == 1:
        return _group(sides[0], given)
    if len(sides) > 2 or ONE_WAY in given.replace(arrow, "", 1):
        raise _unreadable(given, "has more than one arrow")
    if "" in sides[0] + sides[1]:
        raise _unreadable(given, "has an empty side or column name")
    there = Dependency(sides[0], sides[1])
    return (there, Dependency(sides[1], sides[0])) if arrow == TWO_WAY else (there,)


def _group(names: tuple[str, ...], given: str) -> tuple[Dependency, ...]:
    """Each column determines every other."""
    if len(names) < 2:
        raise _unreadable(given, "names fewer than two columns")
    if not all(isinstance(name, str) and name for name in names):
        raise _unreadable(given, "has something other than a column name")
    return tuple(
        Dependency((name,), names[:place] + names[place + 1 :]) for place, name in enumerate(names)
    )


def _unreadable(given: str, why: str) -> ConfigError:
    return ConfigError(
        f"Dependency '{given}' {why}. Write 'a -> b' (a determines b), 'a, b -> c' (both "
        "together), or 'a, b' (each determines the other)."
    )


def check_names(names: Sequence[str], used: Iterable[str]) -> None:
    """Raises UnknownColumnError for the first used name that is not a column of the table."""
    known = set(names)
    for name in used:
        if name not in known:
            raise UnknownColumnError(name, "the table", names)


def implied(names: Sequence[str], dependencies: Iterable[Dependency]) -> Bools:
    """(m, m): [a, b] is true if column a alone determines b, directly or through others.

    Every column determines itself. Composite determinants are left out. If several columns have
    the same name, it means the first.

    Raises UnknownColumnError for a dependency on an unknown column.
    """
    dependencies = tuple(dependencies)
    check_names(names, (name for dependency in dependencies for name in dependency.names))
    place = {name: i for i, name in reversed(list(enumerate(names)))}
    determines = np.eye(len(names), dtype=np.bool_)
    through = set()
    for dependency in dependencies:
        if len(dependency.determinants) == 1:
            determinant = place[dependency.determinants[0]]
            determines[determinant, [place[name] for name in dependency.dependents]] = True
            through.add(determinant)
    for middle in sorted(through):  # Warshall's closure
        before = determines[:, middle]
        determines[before] |= determines[middle]
    return determines
