"""A query from its text to its result: DuckDB's alone, run in stages, or explained."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

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
from relquery.sql.aggregates import Aggregates
from relquery.sql.answers.outer import OuterCheck
from relquery.sql.answers.values import Failure
from relquery.sql.ask import Asker, Replies, ask, failed
from relquery.sql.database import Database, Scratch
from relquery.sql.explain import Foretelling
from relquery.sql.inputs import Question
from relquery.sql.inserts import check_insert
from relquery.sql.macros import Macros
from relquery.sql.plan import PlannedCall, SelectPlan
from relquery.sql.prepared import executed, read_prepared
from relquery.sql.rehearse import Rehearsal
from relquery.sql.result import OUTER, Result, RowError, missing_values
from relquery.sql.rows import Rows
from relquery.sql.scopes import Context
from relquery.sql.source import Source, read_source
from relquery.sql.sources import in_scope
from relquery.sql.walk import Walk
from relquery.table.columns import Int64s

_MAYBE_A_CALL = re.compile(r"\bllm\b", re.IGNORECASE)
_BLANK = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN = re.compile(
    rf"{_BLANK}EXPLAIN\b(?P<option>{_BLANK}ANALYZE\b(?:{_BLANK}\([^)]*\))?"
    rf"|{_BLANK}\({_BLANK}(?:ANALYZE|FORMAT)\b[^)]*\))?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement as given, and what stands in it after EXPLAIN, in its place.

    option: what EXPLAIN was told besides; None where there is no EXPLAIN.
    """

    given: str
    query: str
    option: str | None

    @classmethod
    def of(cls, sql: str) -> _Text:
        found = _EXPLAIN.match(sql)
        if found is None:
            return cls(sql, sql, None)
        # Blanks keep the places that errors name.
        query = re.sub(r"[^\n]", " ", found[0]) + sql[found.end() :]
        return cls(sql, query, (found["option"] or "").strip())


def is_explain(sql: str) -> bool:
    """Whether a statement asks for an explanation, and not to be run."""
    option = _Text.of(sql).option
    return option is not None and "ANALYZE" not in option.upper()


def explained(sql: str) -> str:
    """The text with EXPLAIN before it. Raises QueryError for EXPLAIN ANALYZE, which runs it."""
    text = _Text.of(sql)
    if text.option is not None and "ANALYZE" in text.option.upper():
        raise QueryError(
            f"EXPLAIN {text.option} runs the statement. Write it without {text.option}, or run it "
            "without asking for an explanation."
        )
    return sql if text.option is not None or not sql.strip() else f"EXPLAIN {sql}"


def run_query(sql: str, database: Database, asker: Asker, defaults: Sampling) -> Result:
    """Run one statement, or several if they have no LLM calls.

    With EXPLAIN before it, a statement with LLM calls is explained instead; see sql.explain.

    Raises QueryError for what is wrong with the query before any call is made; issues
    PartialResultWarning if calls left rows without a value. Scratch tables are gone afterwards.
    """
    text = _Text.of(sql)
    with database.held():
        try:
            result = _run_text(text, database, asker, defaults)
        except UnknownColumnError as error:
            raise in_scope(error, text.query, database) from error
    _warn(result.errors)
    return result


def _run_text(text: _Text, database: Database, asker: Asker, defaults: Sampling) -> Result:
    start = asker.clock()
    _check_encoding(text.given)
    statements = database.statements(text.query)
    if not statements:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    if len(statements) == 1:
        body = _prepare_or_execute(statements[0], database)
        if body == "":
            return Result(pa.table({}), (), Report(seconds=asker.clock() - start))
        if body is not None:
            return _run_text(replace(text, query=body), database, asker, defaults)
    source = _source_of_calls(text.query, statements)
    if source is None:
        if text.option is not None and len(statements) > 1:
            raise QueryError(
                f"EXPLAIN stands before {len(statements)} statements, of which it would explain "
                "the first and run the others. Explain them one by one."
            )
        return Result(database.result(text.given), (), Report(seconds=asker.clock() - start))
    if len(statements) > 1:
        raise UnsupportedQueryError(
            f"The text holds {len(statements)} statements, and LLM calls. Run them one by one."
        )
    if text.option:
        raise UnsupportedQueryError(
            f"EXPLAIN {text.option} with LLM calls is not supported. Write EXPLAIN alone for what "
            "the query will ask; for what it did cost, run it and read result.report."
        )
    aggregates = Aggregates.of(database)
    macros = Macros(database, aggregates)
    with Scratch(database) as scratch:
        rehearsal = Rehearsal(database, scratch, aggregates)
        if text.option is not None:
            foretold = Foretelling(rehearsal, asker)
            Walk(source, database, macros, defaults, foretold).statement(source.parse())
            return Result(foretold.result(), (), Report(seconds=asker.clock() - start))
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
    """The statement that EXECUTE runs; "" where there is none to run; None if DuckDB shall run it.

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
    """The text read for its calls; None if it has none and is DuckDB's alone."""
    if not _MAYBE_A_CALL.search(sql):
        return None
    source = read_source(statements[0] if len(statements) == 1 else sql)
    return source if source.calls else None


def _check_encoding(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"The SQL holds half of a character at position {error.start} (a lone surrogate). "
            "Decode it as UTF-16 with surrogate pairs joined."
        ) from error


def _warn(errors: tuple[RowError, ...]) -> None:
    if errors:
        first = errors[0]
        which = f"In {first.stage}" if len(errors) == 1 else f"The first, in {first.stage}"
        warnings.warn(
            f"{missing_values(len(errors))} missing and NULL in the result; see its errors. "
            f"{which}: {first.error}",
            PartialResultWarning,
            stacklevel=4,
        )


@dataclass(slots=True)
class _Asked:
    """Stages that are run, and what they have cost so far.

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
        """Raises LateQueryError for a QueryError that comes when calls were made."""
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
        cells, forms = rows.cells(call.fields, wanted)
        question = Question(name, call.prompt, call.sampling, len(wanted), cells, forms)
        self.kept &= self.asker.ledger is not None and has_one_answer(call.sampling)
        replies = ask(question, self.asker)
        values = rows.of_call(call.index)
        failures = values.store(replies, wanted, call.sampling, name)
        failures += rows.failures(call.index, name)
        errors = _row_errors(failures, rows)
        if errors and self.asker.config.on_error == "raise":
            raise RequestError(failed(errors[0].stage, errors[0].inputs, errors[0].error))
        self.errors += errors
        self.stages.append(_report(name, call, replies, self.asker, len(wanted), start))

    def check(self, checks: tuple[OuterCheck, ...]) -> None:
        """Look for answers that are no value where SELECTs around that of their call read them."""
        for one in checks:
            for row in self.database.fetch(one.rows).to_pylist():
                found = RowError(
                    OUTER,
                    row["_rq_row"],
                    {},
                    one.check.trouble(row["_rq_value"]),
                    row["_rq_value"],
                    Finish.STOP,
                    0,
                )
                if self.asker.config.on_error == "raise":
                    raise RequestError(failed(found.stage, found.inputs, found.error))
                self.errors.append(found)

    def report(self, start: float) -> Report:
        """What the stages have cost, and how many of their answers are no values."""
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
        cells, _ = rows.cells(rows.plan.calls[call].fields, failed_rows)
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
    sent = [answer for answer in replies.answers if answer.attempts]
    return StageReport(
        name=name,
        expression=call.text,
        rows=rows,
        calls=replies.sent,
        ledger_hits=len(replies.answers) - replies.sent,
        prompt_tokens=sum(answer.prompt_tokens for answer in sent),
        cached_tokens=sum(answer.cached_tokens for answer in sent),
        output_tokens=sum(answer.output_tokens for answer in sent),
        attempts=sum(answer.attempts for answer in sent),
        errors=0,  # counted when all places that read the answers are known
        seconds=asker.clock() - start,
        solver_seconds=replies.solver_seconds,
        order=asker.config.order,
        phr=replies.phr,
    )
