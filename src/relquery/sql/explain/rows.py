"""The rows of one SELECT while it is explained: all rows that its filters might keep, or where
selectivities are given or measured, those that are expected to pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import ConfigError, QueryError, unknown
from relquery.reordering.encode import encode
from relquery.sql import names as ours
from relquery.sql.executor import criteria
from relquery.sql.executor.choices import FIRST, SEED
from relquery.sql.executor.order import has_sides
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.bounds import ALL, KnownRows, known_base
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Node
from relquery.sql.planner.plan import Field, Part, PlannedCall, SelectPlan

_CHOICES = 16  # of units that pass, of which the most typical one is taken

Place = tuple[int, str]
"""A criterion over answers: the number of its SELECT, in the order in which they run; its text."""


@dataclass(slots=True)
class Selectivities:
    """Which share of the rows passes each criterion over answers: given, or measured in a run.

    every: that of each criterion; None if not given. by_stage: the same by the stage whose answers
    a criterion reads, which goes first. measured: of how many rows it was true. lengths: tokens of
    a stage's answers on average. missed: stages whose criteria have no share; they keep all rows.
    """

    every: float | None = None
    by_stage: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[Place, criteria.Count] = field(default_factory=dict)
    lengths: Mapping[str, float] = field(default_factory=dict)
    missed: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, given: Any) -> Selectivities | None:
        """From a number, or a dict by stage; None for None. Raises ConfigError."""
        if given is None:
            return None
        if not isinstance(given, Mapping):
            return cls(every=_share(given))
        return cls(
            by_stage={str(name): _share(one, f" of '{name}'") for name, one in given.items()}
        )

    def check_stages(self, stages: Sequence[str]) -> None:
        """Raises ConfigError for a share of a stage that the statement does not have."""
        for name in self.by_stage:
            if name not in stages:
                raise ConfigError(unknown("stage", name, stages, of="this query"))

    def passing(self, place: Place, stage: str, before: Sequence[criteria.Count], rows: int) -> int:
        """How many of some rows pass, so that of all rows the share does. before: what was decided
        each time before.
        """
        share = self.by_stage.get(stage, self.every)
        if (count := self.measured.get(place)) is not None:
            share = count.passed / count.rows
        if share is None:
            self.missed.add(stage)
            return rows
        judged, passed = sum(one.rows for one in before), sum(one.passed for one in before)
        return min(rows, max(0, round(share * (judged + rows)) - passed))


def _share(given: Any, of: str = "") -> float:
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if not is_number or not 0 <= float(given) <= 1:
        raise ConfigError(
            f"selectivity{of} is {given!r}; it must be a number from 0 to 1, the share of rows "
            "that pass, or such numbers by stage: {'filter 1': 0.3}."
        )
    return float(given)


@dataclass(slots=True)
class EstimatedRows(Rows):
    """Base rows of a plan whose calls are not answered.

    known: what is known about the rows that are alive. shares: which rows are expected to pass;
    None to keep all that may. select: the number of the SELECT. stages: by call,
    the stage that asked it first. inputs: by call, an array (rows,) with one number per row;
    rows whose inputs may differ have different numbers. 0 for rows not asked. keys: by call, the
    numbers of its inputs.
    """

    known: KnownRows = ALL
    shares: Selectivities | None = None
    select: int = 0
    stages: dict[int, str] = field(default_factory=dict)
    inputs: dict[int, Int64s] = field(default_factory=dict)
    keys: dict[int, dict[Hashable, int]] = field(default_factory=dict)
    tallies: criteria.Tallies = field(default_factory=criteria.Tallies)

    @classmethod
    def estimated(
        cls,
        plan: SelectPlan,
        database: Database,
        scratch: Scratch,
        stand_ins: Mapping[str, KnownRows],
    ) -> EstimatedRows:
        """Run the base query as far as its rows are known."""
        known = known_base(plan.base, plan.context, stand_ins)
        try:
            rows = cls.of(plan if known.held else _emptied(plan), database, scratch)
        except QueryError:
            if known == ALL:  # the run would fail too
                raise
            # The cause may be rows that a filter would drop, or NULL for an answer.
            known = replace(known, exact=False, held=False)
            rows = cls.of(_emptied(plan), database, scratch)
        assert isinstance(rows, EstimatedRows)
        rows.known = known
        if known.held:
            rows.known = replace(known, most=rows.count)
        return rows

    def matching(self, predicate: Expression, rows: Int64s | None = None) -> Int64s:
        """The matching rows. If the predicate depends on answers, those expected to match, or all.

        Raises QueryError for a predicate that DuckDB cannot run.
        """
        if not self.is_open(predicate):
            return Rows.matching(self, predicate, rows)
        read = f"SELECT {parser().sql(predicate)} FROM {ours.ROWS}"
        self.database.columns(self.sql(read, self.alive[:0]))
        among = self.alive if rows is None else rows
        if self.shares is None or not self.known.held:
            return among
        for one in criteria.criteria_in(predicate):
            self._decide(one, self.shares, among)
        numbers = {text: at for at, text in enumerate(self.tallies.by_text)}
        guessed = criteria.with_columns(
            predicate, lambda text: build.column(ours.criterion(numbers[text]))
        )
        if self.is_open(guessed) or not len(among):
            return among
        return Rows.matching(self, guessed, among)

    def _decide(self, one: criteria.Criterion, shares: Selectivities, among: Int64s) -> None:
        """Take a criterion to hold for a random part of some rows; the same for equal inputs."""
        new, tally = self.tallies.new(one, self, among), self.tallies.of(one, self)
        if not len(new):
            return
        place = self.select, one.text
        wanted = shares.passing(place, self._stage_of(one), tally.counts, len(new))
        seed = [SEED, self.select, len(tally.counts), crc32(one.text.encode())]
        codes = [self.inputs.get(call, np.arange(self.count)) for call in one.calls]
        units = codes[0] if len(codes) == 1 else distinct_rows(np.stack(codes, axis=1))[1]
        tally.add(new, _part(new, units, tally, wanted, seed))

    def _stage_of(self, one: criteria.Criterion) -> str:
        """The last of the stages that answer the calls of a criterion."""
        return next(name for call, name in reversed(self.stages.items()) if call in one.calls)

    defers_filter = False  # the rows that are left are counted

    @property
    def learns(self) -> bool:
        """Whether it is known which rows are expected to pass. If not, a filter runs once, for all
        rows that may reach it.
        """
        return self.shares is not None and not self.shares.missed and self.known.held

    def texts(self, part: Part, rows: Int64s) -> None:
        """Not known: which rows pass is not foretold by their words, but as a share."""

    def passing(self, predicate: Expression, rows: Int64s) -> Int64s:
        """The rows that are expected to pass a filter, or all, since it may keep any of them."""
        passed, is_expected = self.matching(predicate, rows), False
        if not self.is_open(predicate):
            return passed
        if self.shares is not None and self.known.is_at_hand:
            stages = map(self._stage_of, criteria.criteria_in(predicate))
            is_expected = self.shares.missed.isdisjoint(stages)
        self.known = replace(self.known, exact=False, expected=is_expected)
        return passed

    @property
    def may_stop(self) -> bool:
        """Whether the first call may be asked for some of its rows only: a limit may be reached, or
        the answers may show that it is better to ask another one first.
        """
        plan = self.plan
        stops = plan.cut is not None and plan.cut.stops and bool(plan.filters)
        choices = (part for part in plan.parts if len(part.calls) > 1)
        learns = len(plan.filters) > 1 or any(map(has_sides, choices))
        return plan.stops or stops or (learns and len(self.alive) > FIRST)

    def at_most(self, count: int) -> int:
        """A number of rows or inputs, no more than there can be rows."""
        return count if self.known.most is None else min(count, self.known.most)

    def cut(self) -> None:
        """Drop the rows that the SELECT does not return, if this is known; else count them."""
        assert self.plan.cut is not None
        select, known = self.plan.cut.select, self.known
        if known.is_at_hand and not self.is_open(select):
            Rows.cut(self)
            self.known = replace(known, most=len(self.alive))
            return
        self.database.columns(self.sql(parser().sql(select), self.alive[:0]))
        count = self.count if known.held else known.most
        kept = None if count is None else self.window(select, count)
        only_orders = select.distinct is None and select.qualify is None
        if kept is None:
            self.known = replace(known, exact=False)
        elif self.shares is not None and known.is_at_hand and only_orders:
            # As many random rows as the cut by answers keeps.
            shuffled = np.random.default_rng(SEED).permutation(self.alive)
            self.alive = np.sort(shuffled[kept])
            self.known = replace(known, most=len(self.alive), exact=False, expected=True)
        elif known.most is not None:
            self.known = replace(known, most=min(known.most, kept.stop - kept.start), exact=False)

    def is_open(self, node: Node) -> bool:
        """Whether an expression over ours.ROWS depends on answers."""
        return self.known.is_open(node)

    def number_inputs(self, call: PlannedCall, wanted: Int64s) -> int:
        """Number the inputs of a call that may differ. Returns the maximum number of inputs."""
        columns = np.zeros((len(call.fields), len(wanted)), np.int64)
        for at, part in enumerate(call.fields):
            columns[at] = self._codes(part, wanted)
        first, of_row = distinct_rows(columns.T)
        self.note_inputs(call, wanted, of_row)
        return len(first)

    def note_inputs(
        self,
        call: PlannedCall,
        wanted: Int64s,
        of_row: Int64s,
        keys: Sequence[Hashable] | None = None,
    ) -> None:
        """Note which input of a call each row has. of_row: -1 for rows that are not asked, whose
        answer is NULL. keys: of the inputs; None if they are unlike all before.
        """
        known = self.keys.setdefault(call.index, {})
        if keys is None:
            keys = [(len(known), at) for at in range(int(of_row.max(initial=-1)) + 1)]
        numbers = [0, *(known.setdefault(key, len(known) + 1) for key in keys)]
        inputs = self.inputs.setdefault(call.index, np.zeros(self.count, np.int64))
        inputs[wanted] = np.array(numbers)[of_row + 1]

    def _codes(self, part: Field, wanted: Int64s) -> Int32s | Int64s:
        """Numbers for a field's values; values that may differ get different numbers."""
        answer = ours.call_of(part.value.name) if isinstance(part.value, Column) else None
        if answer in self.inputs:
            return self.inputs[answer][wanted]  # equal inputs have equal answers
        if self.is_open(part.value):
            return np.arange(len(wanted), dtype=np.int64)
        return encode(self.cells((part,), wanted).fetch()).codes.reshape(len(wanted))

    def _answers(self, rows: Int64s) -> pa.Table:
        """NULL for answers, and for the criteria over them what is taken to hold."""
        table = Rows._answers(self, rows)
        for at, tally in enumerate(self.tallies.by_text.values()):
            holds = tally.holds[rows] != tally.inverted
            table = table.append_column(ours.criterion(at), pa.array(holds))
        return table


def _part(
    rows: Int64s, units: Int64s, tally: criteria.Tally, wanted: int, seed: list[int]
) -> Int64s:
    """About so many of some rows: all or none of each unit, and of a known unit as before.

    Of some random choices of units, the one whose number of units is most typical.
    """
    judged = np.flatnonzero(tally.judged)
    is_known, holds = np.zeros((2, int(units.max()) + 1), np.bool_)
    is_known[units[judged]] = True
    holds[units[judged]] = tally.holds[judged]
    passed, left = rows[holds[units[rows]]], rows[~is_known[units[rows]]]
    _, inverse, sizes = np.unique(units[left], return_inverse=True, return_counts=True)
    rng, missing = np.random.default_rng(seed), wanted - len(passed)
    typical = missing * len(sizes) / max(1, len(left))
    choices = (
        _choice(rng, sizes, missing) for _ in range(_CHOICES if len(left) > len(sizes) else 1)
    )
    is_in = min(choices, key=lambda choice: abs(int(choice.sum()) - typical))
    return np.concatenate([passed, left[is_in[inverse]]])


def _choice(rng: np.random.Generator, sizes: Int64s, wanted: int) -> Bools:
    """Random units that have about so many rows together."""
    shuffled = rng.permutation(len(sizes))
    middles = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
    is_in = np.zeros(len(sizes), np.bool_)
    is_in[shuffled[middles <= wanted]] = True
    return is_in


def _emptied(plan: SelectPlan) -> SelectPlan:
    base = build.derived(plan.base, ours.BASE)
    return replace(plan, base=build.select([build.star()], base, build.boolean(False)))
