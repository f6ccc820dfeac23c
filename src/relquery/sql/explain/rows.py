"""The rows of one SELECT while it is explained: all rows that its filters might keep, or where
selectivities are given or measured, those that are expected to pass.

A SELECT whose calls are not answered leaves a stand-in: a table with NULL in place of answers and
with every row that a filter might keep. A SELECT that reads a stand-in is analyzed only if this
cannot mislead: it has a single source, and only columns without answers decide its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import ConfigError, QueryError, unknown
from relquery.reordering.encode import encode
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows
from relquery.sql.binder.normalize import has_grouping_sets, keys_of
from relquery.sql.binder.sources import Context
from relquery.sql.executor.choices import FIRST, SEED
from relquery.sql.executor.order import has_sides
from relquery.sql.executor.rows import Rows
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Node
from relquery.sql.planner.checks import answers_in
from relquery.sql.planner.plan import Field, PlannedCall, SelectPlan


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Knowledge about the rows of a table.

    most: the maximum number of rows; None if unknown. exact: whether there are exactly that many.
    held: whether the table at hand contains all of them; it may contain more unless `exact`.
    open: lower-case names of the columns that depend on answers. expected: whether the table at
    hand is an estimate of the rows that remain, based on selectivities, and not an upper bound.
    """

    most: int | None = None
    exact: bool = True
    held: bool = True
    open: frozenset[str] = frozenset()
    expected: bool = False

    @property
    def is_at_hand(self) -> bool:
        """Whether the rows can be counted or estimated before the run."""
        return self.held and (self.exact or self.expected)

    def may_be_open(self, node: tree.Node) -> bool:
        """Whether the value of an expression depends on answers, or may do so."""
        return self.is_open(node) or any(
            isinstance(part, tree.Query | tree.Star) for part in node.walk()
        )

    def is_open(self, node: tree.Node) -> bool:
        """Whether an expression reads a column that contains or depends on answers."""
        names = (name for column in node.find_all(tree.Column) for name in column.names)
        return any(name.lower() in self.open or ours.call_of(name) is not None for name in names)


ALL = KnownRows()
"""For rows unaffected by any LLM call."""
NOTHING = KnownRows(None, exact=False, held=False)


def known_base(
    inner: tree.Select, context: Context, stand_ins: Mapping[str, KnownRows]
) -> KnownRows:
    """What is known about a plan's base; if `held`, the caller sets `most` by counting the rows."""
    read = [inner, *context.needed_by([inner])]
    if not any(table.table in stand_ins for query in read for table in query.find_all(tree.Table)):
        return ALL
    source = inner.source
    if source is None or isinstance(source, tree.Join) or inner.sample is not None:
        return NOTHING
    entries = [*context.entries, *inner.find_all(tree.Entry)]
    named = {entry.name.lower(): entry for entry in entries if "query_node" in entry.value.args}
    stand_in = _stand_in(source, named, stand_ins)
    if stand_in is None:
        return NOTHING
    table = replace(stand_in, open=stand_in.open | {source.name.lower()})
    deciding = [clause for clause in (inner.where, inner.order) if clause is not None]
    if any(map(table.may_be_open, deciding)) or not (inner.limit is None or table.is_at_hand):
        return KnownRows(table.most, exact=False, held=False)
    columns = (item.alias.lower() for item in inner.items if table.may_be_open(item))
    return replace(table, open=frozenset(columns))


def known_rows(select: tree.Select, rows: KnownRows, functions: FunctionCatalog) -> KnownRows:
    """What is known about the result of a plan's final SELECT; `rows`: the same about its input."""
    folds, keys = functions.in_select(select), keys_of(select, functions)
    if any(map(makes_rows, select.items)) or has_grouping_sets(select):
        return NOTHING
    is_one = bool(folds) and not keys
    most = 1 if is_one else rows.most
    cuts = [select.distinct, select.having, select.qualify, select.limit]
    cuts = [cut for cut in cuts if cut is not None]
    # Whether the number of rows is still an estimate, not a bound, after these clauses.
    decided = [*cuts, *(select.items if select.distinct is not None else ())]
    is_expected = rows.expected and not any(map(rows.may_be_open, decided))
    if any(map(rows.may_be_open, keys)) or (cuts and not is_expected):
        return KnownRows(most, exact=False, held=False)
    columns = {
        item.alias.lower()
        for item in select.items
        # A value of several rows depends on answers where these decide which rows there are.
        if rows.may_be_open(item)
        or (not rows.exact and (has_window(item) or functions.has_aggregate(item)))
    }
    exact = (rows.exact and not cuts) or is_one
    return KnownRows(most, exact, rows.held or is_one, frozenset(columns), rows.expected)


def _stand_in(
    source: tree.Source, entries: Mapping[str, tree.Entry], stand_ins: Mapping[str, KnownRows]
) -> KnownRows | None:
    """The stand-in that a source of a FROM clause reads whole, with its column names unchanged."""
    if source.sample is not None or source.columns:
        return None
    query = source.query if isinstance(source, tree.Derived) else None
    if isinstance(source, tree.Table) and source.table.lower() in entries:
        entry = entries[source.table.lower()]
        query = None if entry.columns else entry.query
    if not isinstance(query, tree.Select) or query.modifiers or query.where is not None:
        return None
    is_whole = len(query.items) == 1 and isinstance(query.items[0], tree.Star)
    table = query.source
    return stand_ins.get(table.table) if is_whole and isinstance(table, tree.Table) else None


_CHOICES = 16  # of units that pass, of which the most typical one is taken

Place = tuple[int, int]
"""A filter: the number of its SELECT, in the order in which they run, and its place in that."""


class Count(NamedTuple):
    """Rows that a filter has judged, and how many of them pass."""

    rows: int
    passed: int


@dataclass(slots=True)
class Selectivities:
    """The share of the rows that passes each filter: given, or measured in a run.

    every: that of each filter; None if not given. by_stage: the same by the stage whose answers
    a filter reads, which goes first. measured: of how many rows it was true. lengths: tokens of
    a stage's answers on average. missed: stages whose filters have no share; they keep all rows.
    """

    every: float | None = None
    by_stage: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[Place, Count] = field(default_factory=dict)
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
            by_stage={str(name): _share(share, f" of '{name}'") for name, share in given.items()}
        )

    def check_stages(self, stages: Sequence[str]) -> None:
        """Raises ConfigError for a share of a stage that the statement does not have."""
        for name in self.by_stage:
            if name not in stages:
                raise ConfigError(unknown("stage", name, stages, of="this query"))

    def passing(self, place: Place, stage: str, before: Sequence[Count], rows: int) -> int:
        """How many of some rows pass, so that of all rows the share does. before: what was decided
        each time before.
        """
        share = self.by_stage.get(stage, self.every)
        if (count := self.measured.get(place)) is not None:
            share = count.passed / count.rows
        if share is None:
            self.missed.add(stage)
            return rows
        judged, passed = sum(count.rows for count in before), sum(count.passed for count in before)
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
class _Judged:
    """The rows that are taken to pass a filter. rows: those that were judged; passed: those that
    pass, both (rows,). counts: each time that there were new rows."""

    rows: Bools
    passed: Bools
    counts: list[Count] = field(default_factory=list)

    def add(self, rows: Int64s, passed: Int64s) -> None:
        """Note that some rows were judged, and which of them pass."""
        self.rows[rows] = True
        self.passed[passed] = True
        self.counts.append(Count(len(rows), len(passed)))


@dataclass(slots=True)
class EstimatedRows(Rows):
    """Base rows of a plan whose calls are not answered.

    known: what is known about the rows that are alive. shares: which rows are expected to pass;
    None to keep all that may. select: the number of the SELECT. stages: by call,
    the stage that asked it first. inputs: by call, an array (rows,) with one number per row;
    rows whose inputs may differ have different numbers. 0 for rows not asked. keys: by call, the
    numbers of its inputs. judged: by the place of a filter.
    """

    known: KnownRows = ALL
    shares: Selectivities | None = None
    select: int = 0
    stages: dict[int, str] = field(default_factory=dict)
    inputs: dict[int, Int64s] = field(default_factory=dict)
    keys: dict[int, dict[Hashable, int]] = field(default_factory=dict)
    judged: dict[int, _Judged] = field(default_factory=dict)

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
        """The matching rows; all if the predicate depends on answers.

        Raises QueryError for a predicate that DuckDB cannot run.
        """
        if not self.is_open(predicate):
            return Rows.matching(self, predicate, rows)
        read = f"SELECT {parser().sql(predicate)} FROM {ours.ROWS}"
        self.database.columns(self.sql(read, self.alive[:0]))
        return self.alive if rows is None else rows

    def passing(self, at: int, rows: Int64s) -> Int64s:
        """The rows that are expected to pass a filter, or all, since it may keep any of them."""
        predicate, is_expected = self.plan.filters[at].predicate, False
        passed = self.matching(predicate, rows)
        if not self.is_open(predicate):
            return passed
        if self.shares is not None and self.known.held:
            calls = answers_in(predicate)
            stage = next(name for call, name in reversed(self.stages.items()) if call in calls)
            passed = self._expected(at, stage, calls, self.shares, passed)
            is_expected = self.known.is_at_hand and stage not in self.shares.missed
        self.known = replace(self.known, exact=False, expected=is_expected)
        return passed

    def _expected(
        self, at: int, stage: str, calls: Sequence[int], shares: Selectivities, rows: Int64s
    ) -> Int64s:
        """Those of some rows that are taken to pass a filter: a random part; all or none of those
        with equal inputs."""
        none = _Judged(np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_))
        judged = self.judged.setdefault(at, none)
        if not len(rows):
            return rows
        wanted = shares.passing((self.select, at), stage, judged.counts, len(rows))
        text = self.plan.filters[at].predicate.key.encode()
        seed = [SEED, self.select, len(judged.counts), crc32(text)]
        codes = [self.inputs.get(call, np.arange(self.count)) for call in calls]
        units = codes[0] if len(codes) == 1 else distinct_rows(np.stack(codes, axis=1))[1]
        passed = np.sort(_part(rows, units, judged, wanted, seed))
        judged.add(rows, passed)
        return passed

    defers_filter = False  # the rows that are left are counted

    @property
    def learns(self) -> bool:
        """Whether it is known which rows are expected to pass. If not, a filter runs once, for all
        rows that may reach it.
        """
        return self.shares is not None and not self.shares.missed and self.known.held

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
        for index, part in enumerate(call.fields):
            columns[index] = self._codes(part, wanted)
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
            keys = [(len(known), index) for index in range(int(of_row.max(initial=-1)) + 1)]
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


def _part(rows: Int64s, units: Int64s, judged: _Judged, wanted: int, seed: list[int]) -> Int64s:
    """About so many of some rows: all or none of each unit, and of a known unit as before.

    Of some random choices of units, the one whose number of units is most typical.
    """
    before = np.flatnonzero(judged.rows)
    is_known, passes = np.zeros((2, int(units.max()) + 1), np.bool_)
    is_known[units[before]] = True
    passes[units[before]] = judged.passed[before]
    passed, left = rows[passes[units[rows]]], rows[~is_known[units[rows]]]
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
