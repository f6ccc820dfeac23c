"""The rows of one SELECT while it is explained: all rows that its filters might keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np
import pyarrow as pa

from relquery.arrays import Bools, Int64s
from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.executor.choices import SAMPLE, SEED
from relquery.sql.executor.criteria import Criterion, Tallies, Tally, criteria_in, with_columns
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.bounds import ALL, Known, known_base
from relquery.sql.explain.selectivities import Selectivities
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Node
from relquery.sql.planner.asking import has_sides
from relquery.sql.planner.fields import Field
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.retrieval.blocking import without_similarity
from relquery.table.columns import encode

_CHOICES = 16  # of units that pass, of which the most typical one is taken


@dataclass(slots=True)
class EstimatedRows(Rows):
    """Base rows of a plan whose calls are not answered.

    known: what is known about the rows that are alive. inputs: by call, an array (rows,) with one
    number per row; rows whose inputs may differ have different numbers. 0 for rows not asked.
    shares: which rows are expected to pass; None to keep all that may. select: the number of the
    SELECT. near: see ExplainedCall. stages: by call, the stage that asked it first. units: as
    `inputs`, of all rows.
    """

    known: Known = ALL
    inputs: dict[int, Int64s] = field(default_factory=dict)
    shares: Selectivities | None = None
    select: int = 0
    stages: dict[int, str] = field(default_factory=dict)
    units: dict[int, Int64s] = field(default_factory=dict)
    tallies: Tallies = field(default_factory=Tallies)
    near: tuple[int, int] | None = None
    _asked: dict[int, Int64s] = field(default_factory=dict)

    @classmethod
    def foresee(
        cls,
        plan: SelectPlan,
        database: Database,
        scratch: Scratch,
        stand_ins: dict[str, Known],
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
        if known.held:
            rows.known = replace(known, most=rows.count)
            rows.near = rows.left_by_similarity()
        else:
            rows.known = known
        return rows

    def left_by_similarity(self) -> tuple[int, int] | None:
        """How many rows conditions by AI_SIMILARITY leave, and of how many; None without any."""
        whole = without_similarity(self.plan.base)
        if whole is None:
            return None
        query = parser().sql(self.plan.context.around(whole))
        count = self.database.fetch(f"SELECT count(*) FROM ({query}) AS {ours.BASE}")
        return self.count, int(count.column(0)[0].as_py())

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
        criteria = criteria_in(predicate)
        for one in criteria:
            self._decide(one, among)
        numbers = {text: at for at, text in enumerate(self.tallies.by_text)}
        guessed = with_columns(predicate, lambda text: build.column(ours.criterion(numbers[text])))
        if self.is_open(guessed):
            return among
        return Rows.matching(self, guessed, among) if len(among) else among

    def _decide(self, one: Criterion, among: Int64s) -> None:
        """Take a criterion to hold for a random part of some rows; the same for equal inputs."""
        assert self.shares is not None
        new, tally = self.tallies.new(one, self, among), self.tallies.of(one, self)
        if not len(new):
            return
        place, stage = (self.select, one.text), self._stage_of(one)
        wanted = self.shares.passing(place, stage, tally.counts, len(new))
        seed = [SEED, self.select, len(tally.counts), crc32(one.text.encode())]
        tally.add(new, _part(new, self._units_of(one.calls), tally, wanted, seed))

    def _stage_of(self, one: Criterion) -> str:
        """The last of the stages that answer the calls of a criterion."""
        return next(name for call, name in reversed(self.stages.items()) if call in one.calls)

    def _units_of(self, calls: tuple[int, ...]) -> Int64s:
        """(rows,), equal where all inputs of some calls are."""
        codes = [self.units.get(call, np.arange(self.count)) for call in calls]
        return codes[0] if len(codes) == 1 else distinct_rows(np.stack(codes, axis=1))[1]

    def waits(self, call: PlannedCall) -> bool:
        """Whether what a call asks depends on answers that are not there."""
        return bool(call.needs)

    def leave(self, predicate: Expression) -> bool:
        """Not possible: the rows that are left are counted."""
        return False

    @property
    def learns(self) -> bool:
        """Whether it is known which rows are expected to pass. If not, a filter runs once, for all
        rows that may reach it.
        """
        return self.shares is not None and not self.shares.missed and self.known.held

    def passing(self, predicate: Expression, rows: Int64s) -> Int64s:
        """The rows that are expected to pass a filter, or all, since it may keep any of them."""
        passed, known = self.matching(predicate, rows), self.known
        is_expected = self.shares is not None and known.held and (known.exact or known.expected)
        if is_expected and self.shares is not None and self.shares.missed:
            stages = map(self._stage_of, criteria_in(predicate))
            is_expected = self.shares.missed.isdisjoint(stages)
        self.known = replace(known, exact=False, expected=is_expected)
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
        return plan.stops or stops or (learns and len(self.alive) > SAMPLE)

    @property
    def at_hand(self) -> Known:
        """What is known about the rows that are alive, now that no more are dropped."""
        known = self.known
        return replace(known, most=len(self.alive)) if known.expected else known

    def at_most(self, count: int) -> int:
        """A number of rows or inputs, no more than there can be rows."""
        return count if self.known.most is None else min(count, self.known.most)

    def cut(self) -> None:
        """Drop the rows that the SELECT does not return, if this is known; else count them."""
        assert self.plan.cut is not None
        select = self.plan.cut.select
        if self.known.is_at_hand and not self.is_open(select):
            Rows.cut(self)
            self.known = replace(self.known, most=len(self.alive))
            return
        self.database.columns(self.sql(parser().sql(select), self.alive[:0]))
        count = self.count if self.known.held else self.known.most
        kept = None if count is None else self.window(select, count)
        if self.shares is not None and self.known.is_at_hand and self._cut_expected(kept):
            return
        most = self.known.most
        if kept is not None and most is not None:
            most = min(most, kept.stop - kept.start)
        self.known = replace(self.known, most=most, exact=False)

    def _cut_expected(self, kept: slice | None) -> bool:
        """Keep as many random rows as a cut by answers does, if it only orders them."""
        assert self.plan.cut is not None
        select = self.plan.cut.select
        if kept is None or select.distinct is not None or select.qualify is not None:
            return False
        shuffled = np.random.default_rng(SEED).permutation(self.alive)
        self.alive = np.sort(shuffled[kept])
        self.known = replace(self.known, most=len(self.alive), exact=False, expected=True)
        return True

    def is_open(self, node: Node) -> bool:
        """Whether an expression over ours.ROWS depends on answers."""
        columns = node.find_all(Column)
        return any(self.known.is_open_column(name) for column in columns for name in column.names)

    def number_inputs(self, call: PlannedCall, wanted: Int64s) -> int:
        """Number the inputs of a call that may differ. Returns the maximum number of inputs."""
        columns = [codes for part in call.fields for codes in self._codes(part, wanted)]
        codes = np.stack(columns, axis=1) if columns else np.zeros((len(wanted), 0), np.int64)
        first, of_row = distinct_rows(codes)
        self.note_inputs(call, wanted, of_row)
        return len(first)

    def new_inputs(self, call: PlannedCall, wanted: Int64s) -> Int64s:
        """Those of some rows whose inputs the call was not asked about before."""
        if not self.known.held:
            return wanted
        if call.index not in self.units:
            self.units[call.index] = self._numbered(call, np.union1d(self.alive, wanted))
        units = self.units[call.index]
        before = self._asked.get(call.index, units[:0])
        new = wanted[~np.isin(units[wanted], before)]
        self._asked[call.index] = np.union1d(before, units[new])
        return new

    def _numbered(self, call: PlannedCall, rows: Int64s) -> Int64s:
        """(rows,), numbers of the inputs of a call in some rows, and others for other rows."""
        numbers = np.arange(self.count, dtype=np.int64)
        try:
            columns = [codes for part in call.fields for codes in self._codes(part, rows)]
        except QueryError:  # of a row that is not asked
            return numbers
        codes = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), np.int64)
        first, of_row = distinct_rows(codes)
        numbers[rows] = rows[first][of_row]
        return numbers

    def note_inputs(self, call: PlannedCall, wanted: Int64s, of_row: Int64s) -> None:
        """Note which input of a call each row has."""
        numbers = self.inputs.setdefault(call.index, np.zeros(self.count, np.int64))
        numbers[wanted] = of_row + 1  # rows that are not asked have NULL

    def _codes(self, part: Field, wanted: Int64s) -> list[Int64s]:
        """Numbers for a field's values; values that may differ get different numbers."""
        whole = part.value.name if isinstance(part.value, Column) else ""
        answer = ours.call_of(whole)
        if answer in self.units:
            return [self.units[answer][wanted]]
        if answer in self.inputs:
            return [self.inputs[answer][wanted]]  # equal inputs have equal answers
        if self.is_open(part.value):
            return [np.arange(len(wanted), dtype=np.int64)]
        cells = self.cells((part,), wanted)
        return [encode(cells.fetch()).codes.reshape(len(wanted)).astype(np.int64)]

    def _answers(self, rows: Int64s) -> pa.Table:
        """NULL for answers, and for the criteria over them what is taken to hold."""
        table = Rows._answers(self, rows)
        for at, tally in enumerate(self.tallies.by_text.values()):
            holds = tally.holds[rows] != tally.inverted
            table = table.append_column(ours.criterion(at), pa.array(holds))
        return table


def _part(rows: Int64s, units: Int64s, tally: Tally, wanted: int, seed: list[int]) -> Int64s:
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
