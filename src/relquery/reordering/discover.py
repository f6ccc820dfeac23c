"""Finds functional dependencies that hold exactly or nearly, and are useful for reordering.

The measure is g3 (Kivinen and Mannila 1995): the smallest share of rows to remove so that the
dependency holds. With g3 alone, most dependencies are worthless: nearly distinct values determine
every column, every column determines a nearly constant one, and on few rows anything may hold by
chance. So a dependency must meet three conditions:

1. Its g3 is within the tolerance.
2. The values of its column, or pair of columns, repeat (LEAST_REPEATS): a value that occurs once
   gives no hits.
3. It holds for a reason. If the dependent were shuffled, more than CHANCE times as many rows would
   break it, and so many that a table of independent columns would hardly show such a dependency
   (CERTAINTY). For a composite a, b -> c, the dependent is shuffled among rows of equal a, and of
   equal b: each column must add information to the other. Near keys, near constants and small
   tables all fail here, because shuffling breaks nothing there either.

A composite has two columns, neither of which determines the dependent or the other within the
tolerance. If columns determine each other, only the first is used.

Candidates are counted on all rows, without sampling, and dropped as soon as too many rows break
them, which is early for most. On wide tables, only the columns with the most characters in repeated
cells are used (MOST_CELLS, MOST_COLUMNS): for 10,000 rows the best 316, and the best 58 in
composites; for a million rows 31 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from relquery import _native
from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.dependencies import Dependency, check_names
from relquery.reordering.encode import Columns

# A row in a hundred: a few repeated bodies do not void Body -> PostId, and 99 of 100 hits stay.
TOLERANCE = 0.01
# One row in twenty must repeat a value. Below that, even a free hit on every repeat gains nothing.
LEAST_REPEATS = 0.05
# Of the rows that would break it by chance, four in five must not break it.
CHANCE = 5
# The chance that any independent candidate in a table seems to hold is e^-5, under 1%.
CERTAINTY = 5.0
# Cells that a search may look at if it drops no candidate early: columns^2 x rows, and for
# composites columns^3 x rows / 2. Five seconds at worst, usually a tenth of that.
MOST_CELLS = 1_000_000_000
# Keeps a table of equal columns from giving a million dependencies.
MOST_COLUMNS = 512

Breaks = dict[int, int]  # dependent: rows to remove
Found = Iterator[tuple[tuple[int, ...], Breaks]]  # with the determinants


@dataclass(frozen=True, slots=True, eq=False)
class _Survey:
    """The columns that are used, in the table's order, and the limits for a dependency.

    codes: (k, n). distinct: (k,). limit: rows that may break a dependency.
    draws: (n,), seeded random numbers. counts: scratch, one per code, 0 between calls.
    """

    codes: Int32s
    distinct: Int64s
    limit: int
    draws: Int64s
    counts: Int64s

    @property
    def rows(self) -> int:
        return len(self.draws)

    def refine(self, partition: Partition, column: int) -> Partition:
        return refine(partition, self.codes[column], self.counts)

    def shuffle(self, partition: Partition) -> Int32s:
        return _native.shuffle_within(*partition, self.draws, self.rows)

    def violations(self, partition: Partition, asked: Bools) -> Int64s:
        return _native.violations_of_each(
            *partition, asked, self.codes, self.counts, self.limit, self.distinct
        )


def discover(
    columns: Columns,
    *,
    tolerance: float = TOLERANCE,
    skip: Collection[str] = (),
) -> tuple[Dependency, ...]:
    """Dependencies of columns on one other, and on two others.

    All columns that one determinant fixes exactly form one dependency. Each column that it fixes
    nearly has its own, with its g3. skip: columns to ignore. If several columns have the same name,
    it means the first.

    Raises ConfigError for a tolerance outside 0 to below 1, UnknownColumnError for an unknown
    column in `skip`.
    """
    if not 0 <= tolerance < 1:
        raise ConfigError(
            f"tolerance is {tolerance}; it must be a share of rows from 0 (exact) to below 1."
        )
    check_names(columns.names, skip)
    rows, width = columns.shape
    ranked = _by_gain(columns, skip)
    chosen = sorted(ranked[: _affordable(rows, 2)])
    if len(chosen) < 2:
        return ()
    survey = _survey(columns, chosen, tolerance)
    lost = _count_singles(survey)
    found = list(_singles(survey, lost, _doubt(width, 2)))
    few = set(ranked[: _affordable(rows / 2, 3)])
    places = [place for place, column in enumerate(chosen) if column in few]
    found += _composites(survey, lost, places, _doubt(width, 3))
    names = [columns.names[column] for column in chosen]
    return tuple(d for each in found for d in _written(*each, names, rows))


def _by_gain(columns: Columns, skip: Collection[str]) -> list[int]:
    """Columns that can be used, those with the most characters in repeated cells first."""
    rows, width = columns.shape
    gain: dict[int, int] = {}
    for column, name in enumerate(columns.names):
        if rows == 0 or name in skip or name in columns.names[:column]:
            continue
        counts = np.bincount(columns.codes[:, column])
        lengths = columns.lengths[columns.offsets[column] :][: len(counts)]
        repeats, unlike = rows - len(counts), rows - counts.max()
        if repeats >= LEAST_REPEATS * rows and unlike > _least_by_chance(0, _doubt(width, 2)):
            gain[column] = int((counts - 1) @ lengths)
    return sorted(gain, key=lambda column: -gain[column])


def _affordable(rows: float, power: int) -> int:
    """The number of columns such that columns^power x rows stays within MOST_CELLS."""
    return min(MOST_COLUMNS, int((MOST_CELLS / max(rows, 1)) ** (1 / power)))


def _doubt(width: int, columns: int) -> float:
    """-log of the chance allowed to each candidate of so many columns out of `width`."""
    return math.log(max(math.perm(width, columns), 1)) + CERTAINTY


def _least_by_chance(lost: int, doubt: float) -> int:
    """The number of rows that a shuffle must break if `lost` rows break the dependency.

    If x rows are expected (Poisson), the chance to find no more than y is at most e^-d for
    x = y + d + sqrt(2 y d).
    """
    expected = lost + doubt + math.sqrt(2 * lost * doubt)
    return math.ceil(max(expected, CHANCE * lost))


def _survey(columns: Columns, chosen: Sequence[int], tolerance: float) -> _Survey:
    rows, _ = columns.shape
    distinct = np.diff(columns.offsets)[chosen]
    return _Survey(
        codes=np.ascontiguousarray(columns.codes.T[chosen]),
        distinct=distinct,
        limit=math.floor(round(tolerance * rows, 6)),  # 0.29 x 100 is 28.999999999999996
        draws=np.random.default_rng(0).integers(0, 2**31, rows),
        counts=np.zeros(distinct.max(), np.int64),
    )


def _count_singles(survey: _Survey) -> Int64s:
    """(k, k): rows to remove so that one column determines another, `limit + 1` for too many."""
    lost = np.zeros((len(survey.codes), len(survey.codes)), np.int64)
    for column, row in enumerate(lost):
        partition = survey.refine(whole(survey.rows), column)
        row[:] = survey.violations(partition, np.arange(len(row)) != column)
    return lost


def _singles(survey: _Survey, lost: Int64s, doubt: float) -> Found:
    everything = whole(survey.rows)
    shuffle = survey.shuffle(everything)
    for column, breaks in enumerate(lost):
        if breaks.min() <= survey.limit:
            partition = survey.refine(everything, column)
            yield (column,), _beyond_chance(survey, partition, breaks, [shuffle], doubt)


def _composites(survey: _Survey, lost: Int64s, places: Sequence[int], doubt: float) -> Found:
    """Pairs of the columns at `places` that determine a column that neither does alone."""
    everything = whole(survey.rows)
    fixes = lost <= survey.limit
    takes_part = np.isin(np.arange(len(fixes)), places)
    alone = _one_of_each(fixes, places)
    shuffle_of = cache(lambda column: survey.shuffle(survey.refine(everything, column)))
    for i, a in enumerate(alone):
        coarse = survey.refine(everything, a)
        for b in alone[i + 1 :]:
            asked = takes_part & ~(fixes[a] | fixes[b])
            asked[[a, b]] = False
            if fixes[a, b] or fixes[b, a] or not asked.any():
                continue
            partition = survey.refine(coarse, b)
            if partition.repeats < LEAST_REPEATS * survey.rows:
                continue
            breaks = survey.violations(partition, asked)
            if breaks.min() <= survey.limit:
                shuffles = [shuffle_of(a), shuffle_of(b)]
                yield (a, b), _beyond_chance(survey, partition, breaks, shuffles, doubt)


def _one_of_each(fixes: Bools, places: Sequence[int]) -> list[int]:
    """The columns, without those equivalent to an earlier one (each determines the other)."""
    kept: list[int] = []
    for place in places:
        if not (fixes[place, kept] & fixes[kept, place]).any():
            kept.append(place)
    return kept


def _beyond_chance(
    survey: _Survey, partition: Partition, lost: Int64s, shuffles: Sequence[Int32s], doubt: float
) -> Breaks:
    """Dependents within the limit that every shuffle would break far more often."""
    shuffled = [Partition(shuffle[partition.rows], partition.starts) for shuffle in shuffles]
    breaks: Breaks = {}
    for column in np.flatnonzero(lost <= survey.limit).tolist():
        bound = _least_by_chance(int(lost[column]), doubt)
        by_chance = (
            _native.violations(*each, survey.codes[column], survey.counts, bound)
            for each in shuffled
        )
        if all(count > bound for count in by_chance):
            breaks[column] = int(lost[column])
    return breaks


def _written(
    determinants: tuple[int, ...], breaks: Breaks, names: Sequence[str], rows: int
) -> Iterator[Dependency]:
    left = tuple(names[column] for column in determinants)
    exact = tuple(names[column] for column, lost in breaks.items() if not lost)
    if exact:
        yield Dependency(left, exact)
    for column, lost in breaks.items():
        if lost:
            yield Dependency(left, (names[column],), lost / rows)


class Partition(NamedTuple):
    """Rows grouped by equal values, used to count violations.

    Group g holds `rows[starts[g]:starts[g + 1]]`, two rows or more: groups of one row break no
    dependency (stripped partitions: Huhtala et al., TANE, 1999).
    """

    rows: Int32s
    starts: Int64s

    @property
    def repeats(self) -> int:
        """The number of rows that repeat the value of an earlier row in their group."""
        return len(self.rows) - (len(self.starts) - 1)


def whole(rows: int) -> Partition:
    """All rows in one group; none if there are fewer than two."""
    if rows < 2:
        return Partition(np.empty(0, np.int32), np.zeros(1, np.int64))
    return Partition(np.arange(rows, dtype=np.int32), np.array([0, rows], dtype=np.int64))


def refine(coarse: Partition, codes: Int32s, counts: Int64s) -> Partition:
    """Split the groups by a column with codes by row id. O(rows in the groups).

    counts: scratch, one per code, 0 between calls.
    """
    return Partition(*_native.refine(*coarse, codes, counts))
