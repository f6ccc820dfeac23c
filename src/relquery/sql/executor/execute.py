"""Execution of a plan: calls, answers, row errors, and the sum of what all of it costs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.arrays import Floats, Int64s
from relquery.backends.base import Backend
from relquery.config import PAIR_LABELS
from relquery.errors import RequestError
from relquery.ledger import has_one_answer
from relquery.prompt import Answer, Compared, Finish
from relquery.report import StageReport
from relquery.sql import names as ours
from relquery.sql.binder.call import Task
from relquery.sql.executor.ask import EarlierAnswers, Replies, ask
from relquery.sql.executor.cascade import (
    ask_cascade,
    cascade_of,
    has_cascade,
    joined,
    proxy_stage,
)
from relquery.sql.executor.choices import Seen, rows_to_limit
from relquery.sql.executor.context import ExecutionContext, usd_of
from relquery.sql.executor.groups import ask_groups, ask_matches
from relquery.sql.executor.order import weights_of
from relquery.sql.executor.pairs import ask_by_labels
from relquery.sql.executor.reading import failure_message
from relquery.sql.executor.rows import Rows
from relquery.sql.executor.stages import StageWalker
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import Question
from relquery.sql.inputs.redaction import completed, hidden
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check, answers_in
from relquery.sql.planner.conversions import OuterCheck
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.planner.statement import StatementPlan
from relquery.sql.render import Reasons
from relquery.sql.result import OUTER, CostAccumulator, RowError

_LOG = logging.getLogger(__name__)
_NOT_ASKED = Answer(None, Finish.STOP, attempts=0)
_ABOUT_SEVERAL = {"group": ask_groups, "match": ask_matches}


Start = Callable[[SelectPlan, Database, Scratch], Rows]


@dataclass(slots=True)
class Execution:
    """The execution of one statement's plan. paid: adds up what its stages cost.

    statement: its number, None if it is the only one. ready: base rows that exist already, by the
    place of their SELECT. start: gives the others.
    """

    database: Database
    scratch: Scratch
    context: ExecutionContext
    paid: CostAccumulator
    statement: int | None = None
    ready: Mapping[int, Rows] = field(default_factory=dict)
    start: Start = Rows.of
    _earlier: dict[object, EarlierAnswers] = field(default_factory=dict)
    _orders: dict[object, dict[str, int]] = field(default_factory=dict)
    _promises: int = 1

    def run(self, plan: StatementPlan) -> pa.Table:
        """The rows of a statement."""
        sql, numbered = self.answered(plan)
        table = self.database.result(sql)
        if numbered is not None:
            table, self.paid.reasons = _reasons(table, numbered)
        return table

    def answered(self, plan: StatementPlan) -> tuple[str, Rows | None]:
        """What is left of a statement once its calls are answered.

        Where calls have failed whose rows are those of the result, also these: the statement then
        gives their numbers in a last column.
        """
        numbered, sql = None, ""
        parts = ((select, part) for select in plan.selects for part in select.parts)
        some = ([select.calls[call] for call in part.calls] for select, part in parts)
        self._promises = sum(has_cascade([call], self.context) for calls in some for call in calls)
        if plan.enough is not None:  # the dry run has filled the tables
            for select in plan.selects:
                self.scratch.clear(select.table)
        for index, select in enumerate(plan.selects):
            rows = self.ready.get(index) or self.start(select, self.database, self.scratch)
            rows.weights = weights_of(select.calls, self.context)
            rows.whole = has_cascade(select.calls, self.context)
            walker = StageWalker(rows, self.ask, self.paid.kinds, self.check)
            if plan.enough is not None:
                self._run_until(walker, plan, plan.enough)
            else:
                walker.run()
            for name, note in unlearnt(rows, self.paid.stages):
                stage = self.paid.stages[name]
                self.paid.stages[name] = replace(stage, note=joined(stage.note, note))
            if plan.enough is not None:
                continue
            if select.table:
                self.scratch.fill(select.table, rows.final())
            elif plan.bound.shell.kind == "QUERY" and _is_traced(rows):
                final = select.final.copy()
                final.items = [*final.items, build.column(ours.ROW)]
                numbered, sql = rows, rows.sql(parser().sql(final))
            else:
                sql = rows.final()
        if plan.outer is not None:
            for check in plan.checks:
                self._note_errors(self._outer_errors(check))
            sql = parser().sql(plan.outer)
        return plan.bound.shell.around(sql), numbered

    def _run_until(self, walker: StageWalker[Rows], plan: StatementPlan, enough: int) -> None:
        """Go through the stages of a SELECT for some of its rows at a time, until the statement has
        enough."""
        rows, number = walker.rows, walker.rows.together()
        before = count = self._count(plan)
        begin = end = 0
        while count < enough and begin <= number.max(initial=0):
            end += rows_to_limit(enough - count, Seen(begin, count - before))
            end = max(end, len(number) if rows.whole else 0)
            rows.alive = np.flatnonzero((number >= begin) & (number < end))
            begin = end
            walker.run()
            self.scratch.add(rows.plan.table, rows.final())
            count = self._count(plan)

    def _count(self, plan: StatementPlan) -> int:
        """How many rows a statement returns so far."""
        assert plan.outer is not None
        table = self.database.fetch(f"SELECT count(*) FROM ({parser().sql(plan.outer)})")
        return int(table.column(0)[0].as_py())

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Ask one call for some rows."""
        start, config = self.context.clock(), self.context.config
        context, call = self.context.sent(call)
        alike = self._in_known_order(call)
        given, modules = rows.cells(alike.fields, wanted), context.modules(alike)
        cells = hidden(given, call.task)
        question = Question(name, call.task, len(wanted), cells, modules, call.keys)
        is_kept = self.context.ledger is not None and has_one_answer(call.sampling)
        self.paid.kept &= is_kept
        # Equal calls of a statement share answers, unless the ledger shares them anyway.
        form = call.task.asks, cells.names, cells.forms, modules
        key = (id(rows), call.index) if is_kept else form
        repeats = self._earlier.setdefault(key, EarlierAnswers())
        new, known, answers = repeats.split(question)
        question = replace(question, rows=len(new), cells=cells.part(new))
        earlier = self.paid.stages.get(name)
        context = context.of_stage(name, earlier)
        cascade, proxied = cascade_of(call.task, config, call.text), None
        if (asks := _ABOUT_SEVERAL.get(call.task.kind)) is not None:
            replies = asks(question, context)
        elif cascade is not None and len(new):
            shared = cascade.among(self._promises)
            if cascade.proxy == PAIR_LABELS:
                proxied = ask_by_labels(question, context, shared, repeats.comparison)
            else:
                proxied = ask_cascade(question, context, shared, self._embed, repeats.comparison)
            replies = proxied.replies
        else:
            replies = ask(question, context, repeats.comparison)
        repeats.add(question, replies)
        columns, numbers = rows.of_call(call.index), np.arange(len(answers))
        read = completed(replies.answers, replies.of_row, given.part(new), call.task)
        failed = columns.store(*read, wanted[new], call.task, name)
        read = completed(answers, numbers, given.part(known), call.task)
        failed += columns.store(*read, wanted[known], call.task, name)
        self._note_errors(self._row_errors(call, sorted(failed), rows, name))
        of_proxy = 0.0 if proxied is None else proxied.seconds
        seconds, comparison = self.context.clock() - start - of_proxy, replies.comparison
        stage = StageReport(
            name=name,
            expression=call.text,
            rows=len(wanted),
            **_spent(replies, seconds, context.backend),
            errors=0,  # counted once all places that read the answers are known
            order=comparison.order if comparison and comparison.is_pinned else config.order,
            statement=self.statement,
            agreement=comparison.agreement if comparison else None,
            compared=comparison.compared if comparison else None,
            skipped=int((replies.of_row < 0).sum()),
            note=None if proxied is None else proxied.note,
        )
        if proxied is not None and proxied.proxy is not None and proxied.backend is not None:
            spent = _spent(proxied.proxy, proxied.seconds, proxied.backend)
            spent |= {"agreement": None, "compared": None, "note": None}
            self._add(replace(stage, name=proxy_stage(name, proxied.kind), **spent))
        stage = self._add(stage)
        _LOG.info("%s: %d rows, %d calls, %.2f s", name, stage.rows, stage.calls, stage.seconds)

    def _add(self, stage: StageReport) -> StageReport:
        """A stage with what it took before."""
        earlier = self.paid.stages.get(stage.name)
        found = self.paid.stages[stage.name] = stage if earlier is None else earlier.plus(stage)
        return found

    def _embed(self, texts: pa.Array) -> Floats:
        """Vectors of texts, (texts, dimensions), of the connection's embedder; NaN for none."""
        table = pa.table({ours.ROW: np.arange(len(texts)), ours.VALUE: texts})
        view = self.scratch.view(table, "embedded")
        fetched = self.database.fetch(
            f"SELECT {ours.EMBED}({ours.VALUE}) FROM {view} ORDER BY {ours.ROW}"
        )
        vectors = fetched.column(0).to_pylist()
        width = max((len(vector) for vector in vectors if vector is not None), default=0)
        none = [float("nan")] * width
        return np.array([none if vector is None else vector for vector in vectors], np.float64)

    def _in_known_order(self, call: PlannedCall) -> PlannedCall:
        """A call with its fields as in the first call that asks the same of fields so named, where
        their order is free: equal inputs are then equal."""
        task, config = call.task, self.context.config
        if task.has_places or task.sides or config.order == "original" or config.guard is not None:
            return call
        kinds = {field.name: (field.is_module, field.is_bag) for field in call.fields}
        order = {name: index for index, name in enumerate(kinds)}
        order = self._orders.setdefault((task.asks, frozenset(kinds.items())), order)
        return replace(call, fields=tuple(sorted(call.fields, key=lambda one: order[one.name])))

    def check(self, name: str, checks: tuple[Check, ...], rows: Rows, among: Int64s) -> None:
        """Report answers of some rows that are not valid values."""
        for check in checks:
            call, failed = rows.plan.calls[check.calls[-1]], rows.failed(check, among)
            self._note_errors(self._row_errors(call, failed, rows, name))

    def _note_errors(self, errors: Iterable[RowError]) -> None:
        for error in errors:
            if self.context.config.on_error == "raise":
                raise RequestError(failure_message(error.stage, error.inputs, error.error))
            self.paid.errors.append(error)

    def _outer_errors(self, one: OuterCheck) -> Iterator[RowError]:
        """Answers that are not valid values where an outer SELECT reads them."""
        for row in self.database.fetch(one.rows).to_pylist():
            value, number = row[ours.VALUE], row[ours.ROW]
            error = one.check.trouble(value)
            yield RowError(OUTER, number, {}, error, value, Finish.STOP, 0, self.statement)

    def _row_errors(
        self, call: PlannedCall, failed: list[int], rows: Rows, stage: str
    ) -> Iterator[RowError]:
        """Why a call has no value in some rows, ascending. stage: for rows that were not asked."""
        if not failed:
            return
        columns = rows.of_call(call.index)
        cells = rows.cells(call.fields, np.array(failed)).fetch().to_pylist()
        for row, fields in zip(failed, cells if call.fields else [{}] * len(failed), strict=True):
            asked, trouble = columns.stages[row] or stage, columns.troubles[row]
            answer = columns.answers[row] or _NOT_ASKED
            said = answer.text, answer.finish, answer.attempts
            yield RowError(asked, row, fields, trouble, *said, self.statement)


def _spent(replies: Replies, seconds: float, backend: Backend) -> dict[str, Any]:
    """What answers of a backend took, by the names of a report."""
    return {
        **replies.spent,
        "calls": replies.sent,
        "ledger_hits": replies.known,
        "seconds": seconds,
        "solver_seconds": replies.solver_seconds,
        "phr": replies.phr,
        "model": backend.name if replies.sent or replies.known else "",
        "usd": replies.usd(usd_of(backend)) if replies.sent else None,
    }


def _is_traced(rows: Rows) -> bool:
    """Whether calls have failed for base rows that are those of the result."""
    is_row_by_row = not rows.plan.aggregated and rows.plan.final.distinct is None
    return is_row_by_row and any(rows.troubles.values())


def _reasons(table: pa.Table, rows: Rows) -> tuple[pa.Table, Reasons]:
    """(a result without its last column, the numbers of its base rows; why its cells are empty)."""
    last, troubles = table.num_columns - 1, rows.troubles
    numbers, table = table.column(last).to_numpy(), table.remove_column(last)
    failed = [row for of_call in troubles.values() for row in of_call]
    at_fault = np.flatnonzero(np.isin(numbers, failed)).tolist()
    reasons: dict[tuple[int, int], str] = {}
    for column, item in enumerate(rows.plan.final.items):
        calls = list(answers_in(item))
        for call in calls:  # grows by those whose answers a call's fields read
            calls += [need.call for need in rows.plan.calls[call].needs if need.call not in calls]
        is_null = table.column(column).is_null().to_pylist() if calls else []
        for row in at_fault if calls else []:
            said = (troubles.get(call, {}).get(int(numbers[row])) for call in calls)
            trouble = next(filter(None, said), None)
            if trouble is not None and is_null[row]:
                reasons[row, column] = trouble
    return table, reasons


# Where a stage has told no row from another: one answer for all, or scores that lie together

LEAST = 50
"""Distinct inputs from which on it is told."""
BAND = 0.1
"""Of the range that scores may have: if all of them lie within such a part, they do not separate
the rows."""


def unlearnt(rows: Rows, stages: Mapping[str, StageReport]) -> Iterator[tuple[str, str]]:
    """(stage, what to say of it) for stages of a SELECT by which nothing was learnt."""
    for call in rows.plan.calls:
        columns = rows.of_call(call.index)
        names, values = columns.stages[columns.asked], columns.values[columns.asked]
        for name in dict.fromkeys(names.tolist()):
            stage = stages[name]
            if stage.calls + stage.ledger_hits - (stage.compared or 0) < LEAST:
                continue
            known = [value for value in values[names == name].tolist() if value is not None]
            note = _note(call.task, known) if len(known) >= LEAST else None
            if note is not None:
                yield name, note


def _note(task: Task, values: Sequence[str]) -> str | None:
    sampling = task.sampling
    if task.kind == "score":
        return _of_scores(sampling.labels, list(map(float, values)))
    texts = sampling.texts if isinstance(sampling, Compared) else sampling.labels
    if task.kind != "row" or not texts:
        return None
    seen = {value if value in texts else "another text" for value in values}
    if len(seen) > 1:
        return None
    return (
        f"all {len(values):,} rows have the same answer ({seen.pop()}), so nothing was learnt. "
        "AI_SCORE with this question shows how near the others come; try other words or a larger "
        "model."
    )


def _of_scores(labels: Sequence[str], scores: Sequence[float]) -> str | None:
    try:
        numbers = [float(label) for label in labels]
        width = max(numbers) - min(numbers)
    except ValueError:
        width = 1.0
    low, high = min(scores), max(scores)
    if high - low >= BAND * width or not width:
        return None
    return (
        f"all {len(scores):,} scores are between {low:.3g} and {high:.3g}, which hardly tells rows "
        "apart. rq.evaluate finds a threshold from rows with right answers; try other words or a "
        "larger model."
    )
