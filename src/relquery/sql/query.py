"""Runs a query: passes it to DuckDB, runs it in stages, or explains it."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import (
    LateQueryError,
    PartialResultWarning,
    QueryError,
    RequestError,
    UnknownColumnError,
    UnsupportedQueryError,
)
from relquery.ledger import has_one_answer
from relquery.prompt import Finish, Sampling
from relquery.report import Report, StageReport
from relquery.sql import names as ours
from relquery.sql.answers.outer import OuterCheck
from relquery.sql.execute.answers import Failure
from relquery.sql.execute.ask import Asker, Replies, ask, failed
from relquery.sql.execute.inputs import Question
from relquery.sql.execute.rows import Rows
from relquery.sql.execute.statement import Walk
from relquery.sql.explain.effort import unpriced
from relquery.sql.explain.explain import Foretelling
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.explain.inserts import check_insert
from relquery.sql.explain.rehearse import Rehearsal
from relquery.sql.host.database import Database, Scratch
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.from_clause import in_scope
from relquery.sql.read.macros import Macros
from relquery.sql.read.prepared import executed, read_prepared
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import Source, read_source
from relquery.sql.result import OUTER, Result, RowError, missing_values

_LOG = logging.getLogger(__name__)
_MAYBE_A_CALL = re.compile(r"\bllm\b", re.IGNORECASE)
_BLANK = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN = re.compile(
    rf"{_BLANK}EXPLAIN\b(?P<option>{_BLANK}ANALYZE\b(?:{_BLANK}\([^)]*\))?"
    rf"|{_BLANK}\({_BLANK}(?:ANALYZE|FORMAT)\b[^)]*\))?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement as given, and the query after its EXPLAIN, at the same position.

    option: the option given to EXPLAIN, "" for none; None if there is no EXPLAIN.
    """

    given: str
    query: str
    option: str | None

    @classmethod
    def of(cls, sql: str) -> _Text:
        found = _EXPLAIN.match(sql)
        if found is None:
            return cls(sql, sql, None)
        # Blanks preserve the line and column numbers in errors.
        query = re.sub(r"[^\n]", " ", found[0]) + sql[found.end() :]
        return cls(sql, query, (found["option"] or "").strip())


def is_explain(sql: str) -> bool:
    """Whether a statement only asks for an explanation and is not to be run."""
    option = _Text.of(sql).option
    return option is not None and "ANALYZE" not in option.upper()


def run_query(sql: str, database: Database, asker: Asker, defaults: Sampling) -> Result:
    """Run one statement, or several if they have no LLM calls.

    A statement with LLM calls that starts with EXPLAIN is explained instead, as by `explain_query`.

    Raises QueryError if the query is wrong, before any call is made. Issues PartialResultWarning
    if calls left rows without a value. Drops all scratch tables at the end.
    """
    start, text = asker.clock(), _Text.of(sql)
    with _turn(text, database):
        read = _read(text, database)
        if read is None:
            result = Result(pa.table({}), (), Report(seconds=asker.clock() - start))
        elif read.source is None:
            table = database.result(read.text.given)
            result = Result(table, (), Report(seconds=asker.clock() - start))
        elif text.option is not None:
            table = _explain(read.source, database, asker, defaults).arrow()
            result = Result(table, (), Report(seconds=asker.clock() - start))
        else:
            result = _run(read.source, database, asker, defaults, start)
    _warn(result.errors)
    return result


def explain_query(sql: str, database: Database, asker: Asker, defaults: Sampling) -> SqlExplanation:
    """Report the calls a statement would make, without making any. It may start with EXPLAIN.

    Raises QueryError as `run_query` does, and for EXPLAIN ANALYZE, which would run the statement.
    """
    text = _Text.of(sql)
    if text.option and "ANALYZE" in text.option.upper():
        raise QueryError(
            f"EXPLAIN {text.option} runs the statement. Write it without {text.option}, or run it "
            "without asking for an explanation."
        )
    if text.option is None and text.query.strip():
        text = replace(text, given=f"EXPLAIN {sql}", option="")
    with _turn(text, database):
        read = _read(text, database)
        if read is None:
            return SqlExplanation((), "")
        if read.source is None:
            plan = database.result(read.text.given).column(1).to_pylist()
            return SqlExplanation((), "\n".join(plan))
        return _explain(read.source, database, asker, defaults)


@contextmanager
def _turn(text: _Text, database: Database) -> Iterator[None]:
    """A block for one statement. An unknown column raises an error that lists the right tables."""
    with database.held():
        try:
            yield
        except UnknownColumnError as error:
            raise in_scope(error, text.query, database) from error


@dataclass(frozen=True, slots=True)
class _Read:
    """A statement to run. source: its text with calls; None if it has none and DuckDB runs it."""

    text: _Text
    source: Source | None


def _read(text: _Text, database: Database) -> _Read | None:
    """Read a statement; None if there is nothing left to run."""
    _check_encoding(text.given)
    statements = database.statements(text.query)
    if not statements:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    if len(statements) == 1:
        body = _prepare_or_execute(statements[0], database)
        if body == "":
            return None
        if body is not None:
            return _read(replace(text, query=body), database)
    source = _source_of_calls(text.query, statements)
    if source is None:
        if text.option is not None and len(statements) > 1:
            raise QueryError(
                f"EXPLAIN precedes {len(statements)} statements. It would explain the first and "
                "run the others. Explain them one at a time."
            )
        return _Read(text, None)
    if len(statements) > 1:
        raise UnsupportedQueryError(
            f"The text has {len(statements)} statements and contains LLM calls. Run the "
            "statements one at a time."
        )
    if text.option:
        raise UnsupportedQueryError(
            f"EXPLAIN {text.option} with LLM calls is not supported. Write plain EXPLAIN to see "
            "what the query will ask; to see what it cost, run it and read result.report."
        )
    return _Read(text, source)


def _explain(
    source: Source, database: Database, asker: Asker, defaults: Sampling
) -> SqlExplanation:
    aggregates = Aggregates.of(database, source.parse())
    with Scratch(database) as scratch:
        foretold = Foretelling(Rehearsal(database, scratch, aggregates), asker)
        walk = Walk(source, database, Macros(database, aggregates), defaults, foretold)
        walk.statement(source.parse())
        return SqlExplanation(tuple(foretold.calls), unpriced=unpriced(asker.backend))


def _run(
    source: Source, database: Database, asker: Asker, defaults: Sampling, start: float
) -> Result:
    aggregates = Aggregates.of(database, source.parse())
    macros = Macros(database, aggregates)
    with Scratch(database) as scratch:
        rehearsal = Rehearsal(database, scratch, aggregates)
        rehearsed = Walk(source, database, macros, defaults, rehearsal).statement(source.parse())
        database.bind(rehearsed.sql)
        rehearsal.outer(rehearsed.outer)
        check_insert(database, rehearsed.sql, rehearsal.stand_ins)
        asked = _Asked(database, scratch, asker)
        with asked.paid_for():
            done = Walk(source, database, macros, defaults, asked).statement(source.parse())
            asked.check(done.checks)
            table = database.result(done.sql)
    if done.names is not None:
        table = table.rename_columns(done.names)
    return Result(table, tuple(asked.errors), asked.report(start))


def _prepare_or_execute(statement: str, database: Database) -> str | None:
    """The statement that EXECUTE runs; "" if nothing is to run; None if DuckDB runs the text.

    Raises QueryError.
    """
    found = read_prepared(statement)
    if found is None or (found.verb != "PREPARE" and found.name not in database.prepared):
        return None
    if found.verb == "EXECUTE":
        return executed(database.prepared[found.name], found)
    if found.verb == "PREPARE":
        read_source(found.body).parse()
        database.prepared[found.name] = found.body
    else:
        del database.prepared[found.name]
    return ""


def _source_of_calls(sql: str, statements: list[str]) -> Source | None:
    """The text with its calls located; None if it has none and DuckDB runs it."""
    if not _MAYBE_A_CALL.search(sql):
        return None
    source = read_source(statements[0] if len(statements) == 1 else sql)
    return source if source.calls else None


def _check_encoding(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"The SQL contains half a character at position {error.start} (a lone surrogate). "
            "Decode it as UTF-16 with surrogate pairs joined."
        ) from error


def _warn(errors: tuple[RowError, ...]) -> None:
    if errors:
        first = errors[0]
        which = f"In {first.stage}" if len(errors) == 1 else f"The first, in {first.stage}"
        warnings.warn(
            f"{missing_values(len(errors))} missing and NULL in the result; see result.errors. "
            f"{which}: {first.error}",
            PartialResultWarning,
            stacklevel=4,
        )


@dataclass(slots=True)
class _Asked:
    """Runs stages and adds up what they have cost so far.

    kept: whether the ledger has all answers.
    """

    database: Database
    scratch: Scratch
    asker: Asker
    stages: list[StageReport] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    kept: bool = True

    @contextmanager
    def paid_for(self) -> Iterator[None]:
        """Turn a QueryError into a LateQueryError if calls have already been made."""
        try:
            yield
        except QueryError as error:
            calls = sum(stage.calls for stage in self.stages)
            if not calls:
                raise
            raise LateQueryError(str(error), calls, kept=self.kept) from error

    def rows(self, plan: SelectPlan, context: Context) -> Rows:
        return Rows.of(plan, context, self.database, self.scratch)

    def ask(self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s) -> None:
        start = self.asker.clock()
        cells, modules = rows.cells(call.fields, wanted), self.asker.modules(call)
        question = Question(name, call.prompt, call.sampling, len(wanted), cells, modules)
        self.kept &= self.asker.ledger is not None and has_one_answer(call.sampling)
        replies = ask(question, self.asker)
        values = rows.of_call(call.index)
        failures = values.store(replies, wanted, call.sampling, name)
        failures += rows.failures(call.index, name)
        errors = _row_errors(failures, rows)
        if errors and self.asker.config.on_error == "raise":
            raise RequestError(failed(errors[0].stage, errors[0].inputs, errors[0].error))
        self.errors += errors
        stage = _report(name, call, replies, self.asker, len(wanted), start)
        self.stages.append(stage)
        _LOG.info("%s: %d rows, %d calls, %.2f s", name, stage.rows, stage.calls, stage.seconds)

    def check(self, checks: tuple[OuterCheck, ...]) -> None:
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
                )
                if self.asker.config.on_error == "raise":
                    raise RequestError(failed(found.stage, found.inputs, found.error))
                self.errors.append(found)

    def report(self, start: float) -> Report:
        """What the stages have cost, and how many of their answers are not valid values."""
        failed = Counter(error.stage for error in self.errors)
        stages = tuple(replace(stage, errors=failed[stage.name]) for stage in self.stages)
        return Report(stages, self.asker.clock() - start)

    def table(self, rows: Rows) -> str:
        return self.scratch.table(rows.final())

    def final(self, rows: Rows) -> str:
        return rows.final()


def _row_errors(failures: list[Failure], rows: Rows) -> list[RowError]:
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
    spent = replies.spent
    return StageReport(
        name=name,
        expression=call.text,
        rows=rows,
        calls=replies.sent,
        ledger_hits=len(replies.answers) - replies.sent,
        prompt_tokens=spent.prompt_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        attempts=spent.attempts,
        errors=0,  # counted once all places that read the answers are known
        seconds=asker.clock() - start,
        solver_seconds=replies.solver_seconds,
        order=asker.config.order,
        phr=replies.phr,
    )
