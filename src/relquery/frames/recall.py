"""The recall of a join with blocking, estimated on pairs that it leaves out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from relquery.connection import Connection
from relquery.frames.relation import BlockedJoin, Blocking
from relquery.report import Report, StageReport, wilson_interval
from relquery.sql.result import Result

_log = logging.getLogger("relquery")
_STAGE = "recall"


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of all matching pairs that a blocking keeps, 0 to 1; None if no pair matched.

    interval: of 95% or more. near, far: pairs inside and outside. asked: how many of those outside
    were asked, and found: how many of these match.
    """

    estimate: float | None
    interval: tuple[float, float]
    threshold: float
    near: int
    far: int
    asked: int
    found: int

    def __str__(self) -> str:
        low, high = self.interval
        share = "unknown" if self.estimate is None else f"{self.estimate:.2f}"
        return (
            f"recall of blocking at {self.threshold:g}: {share} ({low:.2f} to {high:.2f}); "
            f"{self.near:,} of {self.near + self.far:,} pairs are near, and {self.found:,} of "
            f"{self.asked:,} others that were asked match"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameResult(Result):
    """A result with the recall of each blocking, whose calls are stages of the report."""

    recalls: tuple[Recall, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([Result.__repr__(self), *map(str, self.recalls)])


class _Stratum(NamedTuple):
    """Pairs on one side of a threshold: how many there are, were asked, and match."""

    pairs: int
    asked: int
    found: int

    @property
    def matches(self) -> tuple[float, float, float]:
        """How many match: the least, as estimated, and the most."""
        if self.asked >= self.pairs:
            return (float(self.found),) * 3
        share = self.found / self.asked
        low, high = wilson_interval(share, self.asked)
        return low * self.pairs, share * self.pairs, high * self.pairs


def described(blocking: Blocking) -> str:
    """What EXPLAIN says of a blocking."""
    measured = (
        f"up to {blocking.sample:,} others are asked as well, to measure its recall"
        if blocking.sample
        else "its recall is not measured"
    )
    return f"sem_join asks only about pairs with a cosine of {blocking.threshold:g}; {measured}"


def with_recall(
    result: Result,
    joins: Sequence[BlockedJoin],
    connection: Connection,
    options: Mapping[str, Any],
) -> Result:
    """A result with the recall of each blocking of its frame, if that is to be measured."""
    recalls: list[Recall] = []
    stages: list[StageReport] = list(result.report.stages)
    seconds = result.report.seconds
    for join in joins:
        if join.blocking.sample:
            recall, reports = _measure(join, connection, options)
            recalls.append(recall)
            _log.info("%s", recall)
            for report in reports:
                seconds += report.seconds
                stages += [
                    replace(stage, name=f"{_STAGE}: {stage.name}") for stage in report.stages
                ]
    if not recalls:
        return result
    report = Report(tuple(stages), seconds)
    known = {
        attribute.name: getattr(result, attribute.name)
        for attribute in fields(Result)
        if attribute.init
    }
    return FrameResult(**{**known, "report": report}, recalls=tuple(recalls))


def _measure(
    join: BlockedJoin, connection: Connection, options: Mapping[str, Any]
) -> tuple[Recall, list[Report]]:
    reports: list[Report] = []

    def asked(*, near: bool, most: int | None) -> _Stratum:
        count, matches = join.pairs(connection.tables(), near=near)
        limit = "" if most is None else f"\nLIMIT {most}"
        (pairs,) = connection.sql(count, **options).fetchall()[0]
        result = connection.sql(matches + limit, **options)
        reports.append(result.report)
        answers = [value for (value,) in result if value is not None]
        return _Stratum(pairs, len(answers), sum(answers))

    blocking = join.blocking
    # The answers inside are in the ledger; without one, a sample of them is asked again.
    near = asked(near=True, most=None if connection.ledger else blocking.sample)
    far = asked(near=False, most=blocking.sample)
    return _recall(near, far, blocking.threshold), reports


def _recall(near: _Stratum, far: _Stratum, threshold: float) -> Recall:
    if not all(recall.asked or not recall.pairs for recall in (near, far)):  # no answer at all
        return Recall(None, (0.0, 1.0), threshold, near.pairs, far.pairs, far.asked, far.found)
    (least, kept, most), (few, lost, many) = near.matches, far.matches
    low = least / (least + many) if least + many else 0.0
    high = most / (most + few) if most + few else 1.0
    estimate = kept / (kept + lost) if kept + lost else None
    return Recall(estimate, (low, high), threshold, near.pairs, far.pairs, far.asked, far.found)
