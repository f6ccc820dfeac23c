"""The share of a preview's rows that passed each condition on answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relquery.report import wilson_interval
from relquery.sql import names as ours
from relquery.sql.executor.criteria import Count
from relquery.sql.explain.shares import Place
from relquery.sql.preview.sampled import SampledRows

_CALL = re.compile(rf"{ours.TEXT_STAND_IN}_(\d+)")


@dataclass(frozen=True, slots=True)
class Passed:
    """A condition. stage: the one whose answers it reads. rows: those that it was applied to."""

    place: Place
    stage: str
    rows: int
    passed: int

    @property
    def count(self) -> Count:
        """The count for the estimate. If no row passed, half a row counts as passed, because a few
        rows do not show that none will pass.
        """
        return Count(self.rows, self.passed) if self.passed else Count(2 * self.rows, 1)

    @property
    def note(self) -> str:
        """The share in words, with its 95% interval."""
        low, high = wilson_interval(self.passed / self.rows, self.rows)
        taken = "" if self.passed else ", counted as half a row"
        return (
            f"{self.stage}: {self.passed} of {self.rows} rows passed{taken} (95% interval "
            f"for all rows: {low:.0%} to {high:.0%})"
        )


def passed(selects: Sequence[SampledRows]) -> Iterator[Passed]:
    """The conditions that were applied to at least one row."""
    for number, rows in enumerate(selects):
        for text, tally in rows.tallies.by_text.items():
            judged = sum(count.rows for count in tally.counts)
            if judged:
                held = sum(count.passed for count in tally.counts)
                yield Passed((number, text), _stage(text, rows), judged, held)


def _stage(text: str, rows: SampledRows) -> str:
    """The stage of the last call that a condition reads."""
    calls = [int(number) for number in _CALL.findall(text)]
    stages = [one for one in rows.of_call(max(calls)).stages if one is not None]
    return stages[0] if stages else "a condition"
