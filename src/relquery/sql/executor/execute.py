"""Runs a plan: asks, keeps answers and row errors, and adds up what all of it costs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import LateQueryError, QueryError, RequestError
from relquery.ledger import has_one_answer
from relquery.prompt import Finish
from relquery.report import Report, StageReport
from relquery.sql import names as ours
from relquery.sql.executor.answered import Asker, after, failed
from relquery.sql.executor.answers import Failure
from relquery.sql.executor.ask import Repeats, Replies, ask, part_of, repeated
from relquery.sql.executor.choices import Seen, rows_to_limit
from relquery.sql.executor.groups import ask_groups
from relquery.sql.executor.guard import Verdict
from relquery.sql.executor.match import ask_matches
from relquery.sql.executor.missing import Marked
from relquery.sql.executor.rows import Rows
from relquery.sql.executor.stages import Asking, run_select
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import Question
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check
from relquery.sql.planner.outer import OuterCheck
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.planner.statement import Plan
from relquery.sql.render import Reasons
from relquery.sql.result import OUTER, RowError

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Paid:
    """What the statements of a query have cost so far.

    stages: by name, in the order in which they begin. kinds: how many stages there were of each
    kind. kept: whether the ledger has all answers. reasons: why cells of the last result are empty.
    """

    stages: dict[str, StageReport] = field(default_factory=dict)
    errors: list[RowError] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    kept: bool = True
    reasons: Reasons = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return sum(stage.calls for stage in self.stages.values())

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Turn a QueryError into a LateQueryError if calls have already been made."""
        try:
            yield
        except QueryError as error:
            if not self.calls:
                raise
            raise LateQueryError(str(error), self.calls, kept=self.kept) from error

    def report(self, seconds: float) -> Report:
        """What the stages have cost, and how many of their answers are not valid values."""
        failed = Counter((error.statement, error.stage) for error in self.errors)
        stages = tuple(
            replace(stage, errors=failed[stage.statement, stage.name])
            for stage in self.stages.values()
        )
        return Report(stages, seconds)


Start = Callable[[SelectPlan, Database, Scratch], Rows]


@dataclass(slots=True)
class Execution:
    """Runs the plan of one statement; its stages are those of `executor.stages`.

    paid: adds up what they cost. statement: its number, None if it is the only one. ready: base
    rows that exist already, by the place of their SELECT. start: gives the others.
    """

    database: Database
    scratch: Scratch
    asker: Asker
    paid: Paid
    statement: int | None = None
    ready: Mapping[int, Rows] = field(default_factory=dict)
    start: Start = Rows.of
    _failures: list[tuple[Rows, Failure]] = field(default_factory=list)
    _repeats: dict[object, Repeats] = field(default_factory=dict)

    def run(self, plan: Plan) -> pa.Table:
        """The rows of a statement."""
        sql, marked = self.answered(plan)
        table = self.database.result(sql)
        if marked is not None:
            table, self.paid.reasons = marked.taken(table)
        return table

    def answered(self, plan: Plan) -> tuple[str, Marked | None]:
        """What is left of a statement once its calls are answered."""
        marked: Marked | None = None
        sql = ""
        if plan.enough is not None:  # the dry run has filled the tables
            for select in plan.selects:
                self.scratch.clear(select.table)
        for at, select in enumerate(plan.selects):
            rows = self.ready[at] if at in self.ready else self.rows(select)
            if plan.enough is not None:
                self._run_until(rows, plan, plan.enough)
                continue
            run_select(rows, self, self.paid.kinds)
            if select.table:
                self.scratch.fill(select.table, rows.final())
            else:
                failures = [one for where, one in self._failures if where is rows]
                is_query = plan.bound.shell.kind == "QUERY"
                marked = Marked.of(rows, failures) if is_query else None
                sql = rows.final() if marked is None else marked.sql
        if plan.outer is not None:
            self._check_outer(plan.checks)
            sql = parser().sql(plan.outer)
        return plan.bound.shell.around(sql), marked

    def _run_until(self, rows: Rows, plan: Plan, enough: int) -> None:
        """Go through the stages of a SELECT for some of its rows at a time, until the statement has
        enough."""
        asking, number = Asking(rows, self, self.paid.kinds), rows.together()
        before = found = self._found(plan)
        begin = end = 0
        while found < enough and begin <= number.max(initial=0):
            end += rows_to_limit(enough - found, Seen(begin, found - before))
            rows.alive = np.flatnonzero((number >= begin) & (number < end))
            begin = end
            asking.run()
            self.scratch.add(rows.plan.table, rows.final())
            found = self._found(plan)

    def _found(self, plan: Plan) -> int:
        """How many rows a statement returns so far."""
        assert plan.outer is not None
        found = self.database.fetch(f"SELECT count(*) FROM ({parser().sql(plan.outer)})")
        return int(found.column(0)[0].as_py())

    def rows(self, plan: SelectPlan) -> Rows:
        """The rows that the stages of a SELECT start with."""
        return self.start(plan, self.database, self.scratch)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Ask one call for some rows."""
        start = self.asker.clock()
        call = call.in_form(self.asker.config)
        cells, modules = rows.cells(call.fields, wanted), self.asker.modules(call)
        question = Question(name, call.task, len(wanted), cells, modules, call.keys)
        self.paid.kept &= self.asker.ledger is not None and has_one_answer(call.sampling)
        values, repeats = rows.of_call(call.index), self._repeats_of(question, rows, call)
        new, known, answers = repeats.split(question)
        earlier = self.paid.stages.get(name)
        asker = after(self.asker, earlier).of_stage(name)
        replies = _answer(part_of(question, new), asker, repeats.verdict)
        repeats.add(part_of(question, new), replies)
        failures = values.store(replies, wanted[new], call.task, name)
        failures += values.store(repeated(answers), wanted[known], call.task, name)
        self._add(failures, rows)
        stage = _report(name, call, replies, self.asker, len(wanted), start)
        stage = replace(stage, statement=self.statement)
        self.paid.stages[name] = stage = stage if earlier is None else earlier.plus(stage)
        _LOG.info("%s: %d rows, %d calls, %.2f s", name, stage.rows, stage.calls, stage.seconds)

    def _repeats_of(self, question: Question, rows: Rows, call: PlannedCall) -> Repeats:
        """What equal calls have asked: those of the whole statement, unless the ledger shares
        their answers anyway."""
        is_kept = self.asker.ledger is not None and has_one_answer(call.sampling)
        cells, task = question.cells, question.task
        form = cells.names, cells.forms, question.modules
        key = (id(rows), call.index) if is_kept else (task.asks, *form)
        return self._repeats.setdefault(key, Repeats())

    def check(self, name: str, checks: tuple[Check, ...], rows: Rows, among: Int64s) -> None:
        """Report answers of some rows that are not valid values."""
        self._add(rows.failures(checks, among, name), rows)

    def cut(self, rows: Rows) -> None:
        """Drop the rows that a SELECT does not return."""
        rows.cut()

    def _add(self, failures: list[Failure], rows: Rows) -> None:
        errors = _row_errors(failures, rows, self.statement)
        if errors and self.asker.config.on_error == "raise":
            raise RequestError(failed(errors[0].stage, errors[0].inputs, errors[0].error))
        self.paid.errors += errors
        self._failures += [(rows, failure) for failure in failures]

    def _check_outer(self, checks: tuple[OuterCheck, ...]) -> None:
        """Report answers that are not valid values where an outer SELECT reads them."""
        for one in checks:
            for row in self.database.fetch(one.rows).to_pylist():
                found = RowError(
                    OUTER,
                    row[ours.ROW],
                    {},
                    one.check.trouble(row[ours.VALUE]),
                    row[ours.VALUE],
                    Finish.STOP,
                    0,
                    self.statement,
                )
                if self.asker.config.on_error == "raise":
                    raise RequestError(failed(found.stage, found.inputs, found.error))
                self.paid.errors.append(found)


def _answer(question: Question, asker: Asker, verdict: Verdict | None) -> Replies:
    if question.task.kind == "group":
        return ask_groups(question, asker)
    if question.task.kind == "match":
        return ask_matches(question, asker)
    return ask(question, asker, verdict)


def _row_errors(failures: list[Failure], rows: Rows, statement: int | None) -> list[RowError]:
    inputs: dict[tuple[int, int], dict[str, str | None]] = {}
    for call in {failure.call for failure in failures}:
        failed_rows = np.unique([failure.row for failure in failures if failure.call == call])
        cells = rows.cells(rows.plan.calls[call].fields, failed_rows).fetch()
        for at, cells_of_row in enumerate(cells.to_pylist()):
            inputs[call, int(failed_rows[at])] = cells_of_row
    return [
        RowError(
            failure.stage,
            failure.row,
            inputs.get((failure.call, failure.row), {}),
            failure.trouble,
            failure.answer.text,
            failure.answer.finish,
            failure.answer.attempts,
            statement,
        )
        for failure in failures
    ]


def _report(
    name: str,
    call: PlannedCall,
    replies: Replies,
    asker: Asker,
    rows: int,
    start: float,
) -> StageReport:
    spent, verdict = replies.spent, replies.verdict
    return StageReport(
        name=name,
        expression=call.text,
        rows=rows,
        calls=replies.sent,
        ledger_hits=replies.known,
        prompt_tokens=spent.prompt_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        attempts=spent.attempts,
        errors=0,  # counted once all places that read the answers are known
        seconds=asker.clock() - start,
        solver_seconds=replies.solver_seconds,
        order=verdict.order if verdict and verdict.is_pinned else asker.config.order,
        phr=replies.phr,
        agreement=verdict.agreement if verdict else None,
        compared=verdict.compared if verdict else None,
        skipped=int((replies.of_row < 0).sum()),
    )
