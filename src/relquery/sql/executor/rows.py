"""The rows of one SELECT while it runs: the rows still needed, and the answers so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from relquery.arrays import Bools, Int64s, Objects
from relquery.errors import QueryError
from relquery.prompt import Answer
from relquery.sql import names as ours
from relquery.sql.binder.call import Task
from relquery.sql.binder.functions import has_window
from relquery.sql.executor.reading import read_answer
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.cells import Cells, Form, as_text, bag_as_text
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Node, Select
from relquery.sql.planner.checks import Check, answers_in
from relquery.sql.planner.plan import Field, PlannedCall, SelectPlan


@dataclass(frozen=True, slots=True, eq=False)
class AnswerColumns:
    """Answers to one call by base row. Filled by `store`.

    answers: as given; None where not asked (yet). stages: names of the stages
    that asked. values: the values of valid answers: texts, or what their type's transport holds.
    asked: base rows that were asked. lost: base rows without an answer. troubles: why base rows
    have no value, for this or another reason.
    """

    answers: Objects
    stages: Objects
    values: Objects
    asked: Bools
    lost: Bools
    troubles: dict[int, str] = field(default_factory=dict)

    @classmethod
    def none_yet(cls, rows: int) -> AnswerColumns:
        """Nothing asked."""
        none, no = np.full(rows, None, dtype=object), np.zeros(rows, np.bool_)
        return cls(none, none.copy(), none.copy(), no, no.copy())

    def store(
        self, answers: Sequence[Answer], of_row: Int64s, rows: Int64s, task: Task, stage: str
    ) -> list[int]:
        """Store the answers for some base rows. Returns the rows whose answers are lost.

        of_row: (rows,), index of each row's answer, or -1 for rows that are not asked.
        """
        read = [read_answer(answer, task) for answer in answers]
        self.asked[rows], self.stages[rows] = True, stage
        self.answers[rows] = _by_row(answers, of_row)
        self.values[rows] = _by_row([value for value, _ in read], of_row)
        troubles = _by_row([trouble for _, trouble in read], of_row)
        lost = np.flatnonzero([trouble is not None for trouble in troubles])
        self.lost[rows[lost]] = True
        numbers: list[int] = rows[lost].tolist()
        self.troubles.update(zip(numbers, troubles[lost], strict=True))
        return numbers


def _by_row(items: Sequence[object], of_row: Int64s) -> Objects:
    """The item of each row. Items may be lists, which numpy would take for rows of an array."""
    column = np.empty(len(items) + 1, dtype=object)
    for index, item in enumerate(items):
        column[index] = item
    by_row: Objects = column[of_row]
    return by_row


@dataclass(slots=True)
class Rows:
    """Base rows of a plan, materialised and numbered from 0.

    alive: the rows still needed. where: a filter that they have still to pass. weights: what a
    token costs in each call, by its number, where they ask several models.
    """

    plan: SelectPlan
    database: Database
    scratch: Scratch
    base: str
    count: int
    alive: Int64s
    values: dict[int, AnswerColumns] = field(default_factory=dict)
    where: Expression | None = None
    weights: Mapping[int, float] = field(default_factory=dict)
    whole: bool = False
    defers_filter: ClassVar[bool] = True
    """Whether a filter, the last thing that needs answers, may be left to the final SELECT."""
    _entries: str | None = None
    _types: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: SelectPlan, database: Database, scratch: Scratch) -> Rows:
        """Run the base query."""
        query, *_ = parser().print([plan.context.around(plan.base), *_fragments(plan)])
        # Numbered from 0 in the order in which DuckDB returns the rows.
        numbered = f"SELECT row_number() OVER () - 1 AS {ours.ROW}, *"
        base, count = scratch.rows(f"{numbered} FROM ({query}) AS {ours.BASE}")
        return cls(plan, database, scratch, base, count, np.arange(count, dtype=np.int64))

    def again(self) -> Rows:
        """The same rows with nothing answered."""
        alive = np.arange(self.count, dtype=np.int64)
        return type(self)(self.plan, self.database, self.scratch, self.base, self.count, alive)

    def of_call(self, index: int) -> AnswerColumns:
        """Where the answers to a call are kept."""
        if index not in self.values:
            self.values[index] = AnswerColumns.none_yet(self.count)
        return self.values[index]

    @property
    def troubles(self) -> dict[int, dict[int, str]]:
        """Why base rows have no value, by call."""
        return {call: columns.troubles for call, columns in self.values.items()}

    def sql(self, select: str, rows: Int64s | None = None) -> str:
        """`select` over the table ours.ROWS: base rows `rows`, or all that are alive."""
        wanted = self.alive if rows is None else rows
        view = self.scratch.view(self._answers(wanted), f"answers_{self.base}")
        join = f"SELECT * FROM {self.base} JOIN {view} USING ({ours.ROW})"
        where = "" if self.where is None else f" WHERE {parser().sql(self.where)}"
        return self._over(f"{join}{where} ORDER BY {ours.ROW}", select)

    def _over(self, rows: str, select: str) -> str:
        """A SELECT over ours.ROWS, which are those of a query, and the plan's WITH entries."""
        if self._entries is None:
            query = build.select([build.number(1)])
            needed = self.plan.context.needed_by(_fragments(self.plan))
            query.entries = [entry.copy() for entry in needed]
            entries = parser().sql(query).removesuffix("SELECT 1").rstrip()
            self._entries = f"{entries}," if needed else "WITH"
        return f"{self._entries} {ours.ROWS} AS ({rows}) {select}"

    def _answers(self, rows: Int64s) -> pa.Table:
        columns: dict[str, pa.Array] = {ours.ROW: pa.array(rows)}
        for call in self.plan.calls:
            values = self.of_call(call.index).values[rows]
            kind = call.task.transport
            columns[ours.answer(call.index)] = pa.array(values.tolist(), kind)
        return pa.table(columns)

    def final(self) -> str:
        """The final SELECT of the plan over the base rows that are alive."""
        return self.sql(parser().sql(self.plan.final))

    def _numbers(self, select: str, rows: Int64s | None = None) -> Int64s:
        numbers: Int64s = self.database.fetch(self.sql(select, rows)).column(0).to_numpy()
        return numbers

    def matching(self, predicate: Expression, rows: Int64s | None = None) -> Int64s:
        """The rows (all alive if None) for which a predicate over ours.ROWS is true."""
        where = f"WHERE {parser().sql(predicate)} ORDER BY {ours.ROW}"
        return self._numbers(f"SELECT {ours.ROW} FROM {ours.ROWS} {where}", rows)

    @property
    def learns(self) -> bool:
        """Whether answers tell which rows pass a filter, so that it can run on a few rows first."""
        return True

    @property
    def learns_early(self) -> bool:
        """Whether it may run on a few rows first."""
        return self.learns and not self.whole

    def passing(self, at: int, rows: Int64s) -> Int64s:
        """The rows for which a filter is true, by its place. Its calls are already answered."""
        return self.matching(self.plan.filters[at].predicate, rows)

    def cut(self) -> None:
        """Drop the rows that the SELECT does not return. The calls of the cut are answered."""
        if self.plan.cut is not None:
            self.alive = np.sort(self._numbers(parser().sql(self.plan.cut.select)))

    def sequence(self, cut: Select) -> Int64s | None:
        """All rows in the order of a cut; None if it cannot be computed for a row.

        That may be a row that the filters drop.
        """
        assert cut.order is not None
        order = build.select([build.column(ours.ROW)], ours.ROWS)
        order.set("modifiers", [cut.order.copy()])
        try:
            return self._numbers(parser().sql(order))
        except QueryError:
            return None

    def groups(self, cut: Select) -> Int64s | None:
        """(rows,), one row of the group of DISTINCT ON that each row is in; see `sequence`."""
        assert cut.distinct is not None
        keys = ", ".join(parser().print(cut.distinct.on))
        group = f"min({ours.ROW}) OVER (PARTITION BY {keys})"
        numbers = np.arange(self.count)
        try:
            table = self.database.fetch(self.sql(f"SELECT {ours.ROW}, {group} FROM {ours.ROWS}"))
        except QueryError:
            return None
        numbers[table.column(0).to_numpy()] = table.column(1).to_numpy()
        return numbers

    def together(self) -> Int64s:
        """(rows,), numbers from 0 on, equal for base rows that must go through the stages at once:
        those of a group of DISTINCT ON, or all where the SELECT sees several rows."""
        plan, cut = self.plan, self.plan.cut
        sees_several = cut is not None or plan.aggregated or plan.final.distinct is not None
        groups: Int64s | None = np.arange(self.count)
        if cut is not None and cut.select.distinct is not None and cut.stops:
            groups = self.groups(cut.select)
        elif sees_several or any(has_window(item) for item in plan.final.items):
            groups = None
        if groups is None:
            return np.zeros(self.count, np.int64)
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[number]

    def window(self, cut: Select, count: int) -> slice | None:
        """Which of `count` rows that pass LIMIT and OFFSET of a cut keep.

        None if this depends on how many pass.
        """
        if cut.limit is not None and cut.limit.is_share:
            return None
        kept = build.select([build.column(ours.PLACE)], ours.ROWS)
        if cut.limit is not None:
            kept.set("modifiers", [cut.limit.copy()])
        places = f"SELECT range AS {ours.PLACE} FROM range({count})"
        read = (
            f"SELECT coalesce(min({ours.PLACE}), 0), coalesce(max({ours.PLACE}) + 1, 0) "
            f"FROM ({parser().sql(kept)})"
        )
        table = self.database.fetch(self._over(places, read))
        first, end = (column[0].as_py() for column in table.columns)
        return slice(first, end)

    def determined(self, call: PlannedCall, rows: Int64s) -> Int64s:
        """The rows in which no field of a call depends on a missing answer.

        In the others, the call's own answer is missing, too.
        """
        kept = rows
        for need in call.needs:
            lost = kept[self.of_call(need.call).lost[kept]]
            if len(lost):
                kept = np.setdiff1d(kept, self.matching(need.reads, lost))
        if len(kept) < len(rows):
            self.of_call(call.index).lost[np.setdiff1d(rows, kept)] = True
        return kept

    def failed(self, check: Check, rows: Int64s) -> list[int]:
        """Rows, of these, that fail a check whose calls are answered, and did not fail before."""
        table = self.database.fetch(self.sql(_failed_rows(check), rows))
        pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
        known = self.of_call(check.calls[-1]).troubles
        new = {row: check.trouble(value) for row, value in pairs if row not in known}
        known.update(new)
        return list(new)

    def bind_checks(self) -> None:
        """Have DuckDB look for errors in the checks of the plan."""
        for check in (each for part in self.plan.parts for each in part.checks):
            self.database.columns(self.sql(_failed_rows(check), self.alive[:0]))

    def cells(self, fields: tuple[Field, ...], rows: Int64s) -> Cells:
        """The fields of some rows, ascending, as text to be read."""
        written = self._as_text(fields)
        items = ", ".join(
            f"{text} AS {ours.field(index)}" for index, (text, _) in enumerate(written)
        )
        names, forms = tuple(field.name for field in fields), tuple(form for _, form in written)

        def read(wanted: Int64s) -> pa.Table:
            select = f"SELECT {ours.ROW}, {items} FROM {ours.ROWS}"
            fetched = self.database.fetch(self._unordered(select, fields, wanted))
            numbers, columns = fetched.column(0).to_numpy(), fetched.columns[1:]
            del fetched
            if not (numbers[1:] > numbers[:-1]).all():
                order = pa.array(np.argsort(numbers))
                for index in range(len(columns)):  # only one column is in memory twice
                    columns[index] = columns[index].take(order)
            return pa.table(columns, names=[ours.field(index) for index in range(len(columns))])

        return Cells(names, forms, rows, read)

    def compute(self, fields: tuple[Field, ...], rows: Int64s) -> None:
        """Have DuckDB compute the fields of some rows. Raises QueryError if that fails."""
        items = ", ".join(text for text, _ in self._as_text(fields))
        if items:
            select = f"SELECT {items} FROM {ours.ROWS}"
            self.database.execute(f"EXPLAIN ANALYZE {self._unordered(select, fields, rows)}")

    def _as_text(self, fields: tuple[Field, ...]) -> list[tuple[str, Form]]:
        """SQL that writes each field as text, and the form of that text."""
        if not fields:
            return []
        texts = tuple(parser().print(field.value for field in fields))
        if texts not in self._types:
            select = f"SELECT {', '.join(texts)} FROM {ours.ROWS}"
            described = self.database.columns(self._unordered(select, fields, None))
            self._types[texts] = [kind for _, kind in described]
        return [
            bag_as_text(field.name, text, kind) if field.is_bag else as_text(text, kind)
            for field, text, kind in zip(fields, texts, self._types[texts], strict=True)
        ]

    def _unordered(self, select: str, fields: tuple[Field, ...], rows: Int64s | None) -> str:
        """`select`, which reads fields, over some rows in any order: sorting texts takes memory.

        rows: None for a query that is only described.
        """
        if any(answers_in(field.value) for field in fields):
            return self.sql(select, self.alive[:0] if rows is None else rows)
        source = f"SELECT * FROM {self.base}"
        if rows is not None and len(rows) < self.count:
            view = self.scratch.view(pa.table({ours.ROW: rows}), f"some_{self.base}")
            source += f" SEMI JOIN {view} USING ({ours.ROW})"
        return self._over(source, select)


def _fragments(plan: SelectPlan) -> Iterable[Node]:
    """What is printed of a plan, besides its base."""
    yield plan.final
    yield from (filter_.predicate for filter_ in plan.filters)
    if plan.cut is not None:
        yield plan.cut.select
    for call in plan.calls:
        yield from (field.value for field in call.fields)
        yield from (need.reads for need in call.needs)
    for part in plan.parts:
        for check in part.checks:
            yield check.value
            yield check.failed


def _failed_rows(check: Check) -> str:
    value, failed = parser().print([check.value, check.failed])
    return f"SELECT {ours.ROW}, {value} FROM {ours.ROWS} WHERE {failed} ORDER BY {ours.ROW}"
