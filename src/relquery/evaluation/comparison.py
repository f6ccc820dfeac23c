"""Two evaluations of the same rows: which rows only one of them has right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Any

from relquery.errors import ConfigError, QueryError
from relquery.evaluation.columns import Key
from relquery.html import boxed, lines, of_columns
from relquery.report import in_columns

Scored = Mapping[Key, tuple[Any, bool]]
"""(the right answer, whether the prediction is right) by key."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The rows that are in both evaluations, by key."""

    both: int
    """The number of rows that both have right."""
    neither: int
    """The number of rows that neither has right."""
    gained: tuple[Key, ...]
    """Keys that only the second has right."""
    lost: tuple[Key, ...]
    """Keys that only the first has right."""
    apart: int = 0
    """How many rows are in only one of the two."""

    @property
    def rows(self) -> int:
        """Rows that are compared."""
        return self.both + self.neither + len(self.gained) + len(self.lost)

    @property
    def accuracies(self) -> tuple[float, float]:
        """The accuracy of each on the rows that are compared."""
        return (self.both + len(self.lost)) / self.rows, (self.both + len(self.gained)) / self.rows

    @property
    def difference(self) -> float:
        """The second accuracy minus the first."""
        return (len(self.gained) - len(self.lost)) / self.rows

    @property
    def p_value(self) -> float:
        """How likely a difference as large as this is by chance (McNemar's exact test, two-sided).

        1 if no row differs.
        """
        return sign_test(len(self.gained), len(self.lost))

    @property
    def summary(self) -> list[str]:
        """The outcome in words."""
        first, second = self.accuracies
        said = [
            f"accuracy {first:.3f} and {second:.3f} ({self.difference:+.3f}) on {self.rows:,} rows",
            f"p = {self.p_value:.2g} (McNemar's exact test of {len(self.gained)} against "
            f"{len(self.lost)} rows)",
        ]
        if self.apart:
            said.append(f"{self.apart:,} rows are in only one of the two and are not compared.")
        return said

    def _columns(self) -> dict[str, list[str]]:
        return {
            "": ["first right", "first not right"],
            "second right": [str(self.both), str(len(self.gained))],
            "second not right": [str(len(self.lost)), str(self.neither)],
        }

    def __repr__(self) -> str:
        shown = in_columns(self._columns(), numbers=True)
        return "\n".join([*self.summary[:2], shown, *self.summary[2:]])

    def _repr_html_(self) -> str:
        """For notebooks."""
        shown = of_columns(self._columns(), [""])
        return boxed(lines(self.summary[:2]), shown, lines(self.summary[2:]))


def compared(first: Scored, second: Scored) -> Comparison:
    """Pair rows by key. Raises what `Evaluation.compare` raises."""
    shared = [key for key in first if key in second]
    if () in first or () in second:
        raise ConfigError(
            "Rows are paired by key. Give key='column' to rq.evaluate in both evaluations."
        )
    if not shared:
        raise ConfigError(
            "No key is in both evaluations. Use the same rows and the same key= for both."
        )
    verdicts: dict[tuple[bool, bool], list[Key]] = {}
    for key in shared:
        (ours, is_first), (other, is_second) = first[key], second[key]
        if ours != other:
            raise QueryError(
                f"The right answer of the key {', '.join(map(repr, key))} is {ours!r} in one "
                f"evaluation and {other!r} in the other. Score both against the same right answers."
            )
        verdicts.setdefault((is_first, is_second), []).append(key)
    return Comparison(
        len(verdicts.get((True, True), [])),
        len(verdicts.get((False, False), [])),
        tuple(verdicts.get((False, True), [])),
        tuple(verdicts.get((True, False), [])),
        len(first) + len(second) - 2 * len(shared),
    )


def sign_test(one: int, other: int) -> float:
    """The two-sided probability that fair coin flips split at least as unevenly as this."""
    count, least = one + other, min(one, other)
    tail = (
        exp(lgamma(count + 1) - lgamma(index + 1) - lgamma(count - index + 1) - count * log(2))
        for index in range(least + 1)
    )
    return min(1.0, 2 * sum(tail))
