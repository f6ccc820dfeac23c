"""Someone who knows every answer beforehand, and asks only what the result depends on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Input = tuple[str, Hashable]


@dataclass(frozen=True)
class Predicate:
    """holds: whether it is true for a row, and input: what is sent to find out. Equal inputs are
    one call.
    """

    name: str
    input: Callable[[Row], Hashable]
    holds: Callable[[Row], bool]

    def asked(self, row: Row) -> Input:
        return (self.name, self.input(row))


@dataclass
class Oracle:
    """asked: the distinct inputs that it has paid for."""

    asked: set[Input] = field(default_factory=set)

    def all_of(self, predicates: Sequence[Predicate], row: Row) -> bool:
        """A row passes if all are asked; to drop it, one that is false is enough."""
        return self._decided(predicates, row, by=False)

    def one_of(self, predicates: Sequence[Predicate], row: Row) -> bool:
        """To keep a row, one that is true is enough; to drop it, all are asked."""
        return not self._decided(predicates, row, by=True)

    def ask(self, name: str, inputs: Sequence[Hashable]) -> None:
        """Calls whose answers the result shows."""
        self.asked.update((name, each) for each in inputs)

    def first(self, count: int, rows: Sequence[Row], passes: Callable[[Row], bool]) -> list[Row]:
        """The first rows that pass, tried one after the other."""
        found: list[Row] = []
        for row in rows:
            if len(found) == count:
                break
            if passes(row):
                found.append(row)
        return found

    def _decided(self, predicates: Sequence[Predicate], row: Row, by: bool) -> bool:
        deciding = [one.asked(row) for one in predicates if one.holds(row) is by]
        if not deciding:
            self.asked.update(one.asked(row) for one in predicates)
            return True
        if self.asked.isdisjoint(deciding):
            self.asked.add(deciding[0])
        return False
