"""Which share of the rows passes what a query asks of its answers: given, or measured in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from relquery.errors import ConfigError, unknown
from relquery.report import wilson_interval
from relquery.sql.executor.criteria import Count
from relquery.sql.explain.cost.lengths import ONE, Range

Place = tuple[int, str]
"""A criterion over answers: the number of its SELECT, in the order in which they run; its text."""


@dataclass(slots=True)
class Selectivities:
    """What is known of the criteria in a statement.

    every: the share of rows of each criterion; None if not given. by_stage: the same by the stage
    whose answers a criterion reads, which goes first. measured: of how many rows it was true.
    lengths: tokens of a stage's answers on average. missed: stages whose criteria have no share;
    they keep all rows.
    """

    every: float | None = None
    by_stage: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[Place, Count] = field(default_factory=dict)
    lengths: Mapping[str, float] = field(default_factory=dict)
    missed: set[str] = field(default_factory=set)

    @property
    def spread(self) -> Range:
        """How far the rows that pass may be from what is expected: as the least certain of the
        measured shares is. Given ones are taken as they are.
        """
        counts = self.measured.values()
        bounds = [_bounds(one.passed / one.rows, one.rows) for one in counts if one.rows]
        return max(bounds, key=lambda one: one.high, default=ONE)

    def passing(self, place: Place, stage: str, before: Sequence[Count], rows: int) -> int:
        """How many of some rows pass. before: what was decided each time before."""
        share = self.by_stage.get(stage, self.every)
        if (count := self.measured.get(place)) is not None:
            share = count.passed / count.rows
        if share is None:
            self.missed.add(stage)
            return rows
        return _rest(rows, share, before)


def _bounds(share: float, rows: int) -> Range:
    """A measured share relative to itself, with its 95% interval."""
    low, high = wilson_interval(share, rows)
    return Range(low / share, 1.0, high / share) if share else Range(0.0, 1.0, 1.0)


def _rest(rows: int, share: float, before: Sequence[Count]) -> int:
    """How many rows must pass so that of all rows the share does."""
    judged, passed = sum(one.rows for one in before), sum(one.passed for one in before)
    return min(rows, max(0, round(share * (judged + rows)) - passed))


def read_selectivity(given: Any) -> Selectivities | None:
    """From a number, or a dict by stage; None for None. Raises ConfigError."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return Selectivities(
            by_stage={str(name): _share(one, f" of '{name}'") for name, one in given.items()}
        )
    return Selectivities(every=_share(given))


def _share(given: Any, of: str = "") -> float:
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if not is_number or not 0 <= float(given) <= 1:
        raise ConfigError(
            f"selectivity{of} is {given!r}; it must be a number from 0 to 1, the share of rows "
            "that pass, or such numbers by stage: {'filter 1': 0.3}."
        )
    return float(given)


def check_stages(shares: Selectivities, stages: Sequence[str]) -> None:
    """Raises ConfigError for a share of a stage that the statement does not have."""
    for name in shares.by_stage:
        if name not in stages:
            raise ConfigError(unknown("stage", name, stages, of="this query"))
