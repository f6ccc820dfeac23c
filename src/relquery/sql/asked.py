"""Runs stages: asks, keeps answers and row errors, and adds up what all of it costs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from relquery.arrays import Int64s
from relquery.errors import LateQueryError, QueryError, RequestError
from relquery.ledger import has_one_answer
from relquery.prompt import Finish
from relquery.report import Report, StageReport
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check
from relquery.sql.answers.outer import OuterCheck
from relquery.sql.execute.answers import Failure
from relquery.sql.execute.ask import Replies, ask
from relquery.sql.execute.asker import Asker, after, failed
from relquery.sql.execute.groups import ask_groups
from relquery.sql.execute.guard.verdict import Verdict
from relquery.sql.execute.match import ask_matches
from relquery.sql.execute.repeats import part_of, repeated
from relquery.sql.execute.rows import Rows
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import Question
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.scopes import Context
from relquery.sql.result import OUTER, RowError
from relquery.sql.shown.missing import Marked, Reasons

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


Start = Callable[[SelectPlan, Context, Database, Scratch], Rows]


@dataclass(slots=True)
class Asked:
    """Runs the stages of one statement; see walk.stages.

    paid: adds up what they cost. statement: its number, None if it is the only one. start: gives
    the rows that a SELECT starts with.
    """

    database: Database
    scratch: Scratch
    asker: Asker
    paid: Paid
    statement: int | None = None
    start: Start = Rows.of
    _failures: list[tuple[Rows, Failure]] = field(default_factory=list)
    _marked: Marked | None = None

    def rows(self, plan: SelectPlan, context: Context) -> Rows:
        return self.start(plan, context, self.database, self.scratch)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: exp.Expr | None
    ) -> None:
        start = self.asker.clock()
        call = call.in_form(self.asker.config.form)
        cells, modules = rows.cells(call.fields, wanted), self.asker.modules(call)
        question = Question(name, call.task, len(wanted), cells, modules, call.keys)
        self.paid.kept &= self.asker.ledger is not None and has_one_answer(call.sampling)
        values = rows.of_call(call.index)
        new, known, answers = values.repeats.split(question)
        earlier = self.paid.stages.get(name)
        asker = after(self.asker, earlier).of_stage(name)
        replies = _answer(part_of(question, new), asker, values.repeats.verdict)
        values.repeats.add(part_of(question, new), replies)
        failures = values.store(replies, wanted[new], call.task, name)
        failures += values.store(repeated(answers), wanted[known], call.task, name)
        self._add(failures, rows)
        stage = _report(name, call, replies, self.asker, len(wanted), start)
        stage = replace(stage, statement=self.statement)
        self.paid.stages[name] = stage = stage if earlier is None else earlier.plus(stage)
        _LOG.info("%s: %d rows, %d calls, %.2f s", name, stage.rows, stage.calls, stage.seconds)

    def check(self, name: str, checks: tuple[Check, ...], rows: Rows, among: Int64s) -> None:
        self._add(rows.failures(checks, among, name), rows)

    def _add(self, failures: list[Failure], rows: Rows) -> None:
        errors = _row_errors(failures, rows, self.statement)
        if errors and self.asker.config.on_error == "raise":
            raise RequestError(failed(errors[0].stage, errors[0].inputs, errors[0].error))
        self.paid.errors += errors
        self._failures += [(rows, failure) for failure in failures]

    def cut(self, rows: Rows) -> None:
        rows.cut()

    def check_outer(self, checks: tuple[OuterCheck, ...]) -> None:
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

    def table(self, rows: Rows) -> str:
        return self.scratch.table(rows.final())

    def final(self, rows: Rows) -> str:
        self._marked = Marked.of(rows, [one for where, one in self._failures if where is rows])
        return rows.final() if self._marked is None else self._marked.sql

    def result(self, sql: str) -> pa.Table:
        """The rows of the statement, once its calls are answered."""
        table = self.database.result(sql)
        if self._marked is not None:
            table, self.paid.reasons = self._marked.taken(table)
        return table


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
    )
