"""Running a query: its SELECTs with calls from the inside out, each as stages of its plan."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from relquery.errors import (
    PartialResultWarning,
    QueryError,
    RequestError,
    UnknownColumnError,
    UnsupportedQueryError,
)
from relquery.prompt import Sampling
from relquery.report import Report, StageReport
from relquery.sql.aggregates import Aggregates
from relquery.sql.ask import Asker, Question, Replies, ask, failed
from relquery.sql.database import Database, Scratch
from relquery.sql.groups import asks_about_groups, over_groups
from relquery.sql.normalize import check_forms, check_places, move_join_conditions, normalize
from relquery.sql.plan import Filter, PlannedCall, Scope, plan_select
from relquery.sql.result import Result, RowError, missing_values
from relquery.sql.rows import Rows
from relquery.sql.scopes import Context, context_of, next_select
from relquery.sql.source import Source, read_source, readable, to_sql
from relquery.sql.sources import in_scope, read_sources
from relquery.sql.stub import check, column_names, result_names
from relquery.sql.values import Failure
from relquery.table.columns import Int64s

_MAYBE_A_CALL = re.compile(r"\bllm\b", re.IGNORECASE)
_CALL_IN_EXPLAIN = re.compile(r"\s*EXPLAIN\b.*\bllm\s*\(", re.IGNORECASE | re.DOTALL)


def run_query(sql: str, database: Database, asker: Asker, defaults: Sampling) -> Result:
    """Run one statement, or several if they have no LLM calls.

    Raises QueryError for what is wrong with the query before any call is made; issues
    PartialResultWarning if calls left rows without a value. Scratch tables are gone afterwards.
    """
    with database.held():
        try:
            result = _run_text(sql, database, asker, defaults)
        except UnknownColumnError as error:
            raise in_scope(error, sql, database) from error
    _warn(result.errors)
    return result


def _run_text(sql: str, database: Database, asker: Asker, defaults: Sampling) -> Result:
    start = asker.clock()
    _check_text(sql)
    statements = database.statements(sql)
    if not statements:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    source = _source_of_calls(sql, statements)
    if source is None:
        return Result(database.fetch(sql), (), Report(seconds=asker.clock() - start))
    if len(statements) > 1:
        raise UnsupportedQueryError(
            f"The text holds {len(statements)} statements, and LLM calls. Run them one by one."
        )
    with Scratch(database) as scratch:
        run = _Run(source, database, scratch, asker, defaults, Aggregates.of(database))
        table = run.statement(source.parse())
    return Result(table, tuple(run.errors), Report(tuple(run.stages), asker.clock() - start))


def _source_of_calls(sql: str, statements: list[str]) -> Source | None:
    """The text read for its calls; None if it has none and is DuckDB's alone."""
    if not _MAYBE_A_CALL.search(sql):
        return None
    source = read_source(statements[0] if len(statements) == 1 else sql)
    return source if source.calls else None


def _check_text(sql: str) -> None:
    if _CALL_IN_EXPLAIN.match(sql):
        raise _no_calls_in("EXPLAIN")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"The SQL holds half of a character at position {error.start} (a lone surrogate). "
            "Decode it as UTF-16 with surrogate pairs joined."
        ) from error


def _check_statement(tree: exp.Expr) -> None:
    """Only statements that are done with their rows when they end can have calls."""
    if isinstance(tree, exp.Query | exp.Insert | exp.Copy):
        return
    if isinstance(tree, exp.Create) and tree.kind == "TABLE":
        return
    if isinstance(tree, exp.Create):
        raise _no_calls_in(f"CREATE {'MACRO' if tree.kind == 'FUNCTION' else tree.kind}")
    raise _no_calls_in("UNPIVOT" if tree.args.get("unpivot") else tree.key.upper())


_TO_TABLE = "Write the answers to a table first: CREATE TABLE answers AS SELECT ..., LLM(...)."
_REMEDIES = {
    "EXPLAIN": f"Explain the query without its calls. {_TO_TABLE}",
    "DESCRIBE": f"Describe the query without its calls. {_TO_TABLE}",
    "CREATE VIEW": f"A view would ask again whenever it is read. {_TO_TABLE}",
    "CREATE MACRO": f"A macro would ask again whenever it is called. {_TO_TABLE}",
    "UPDATE": f"{_TO_TABLE} Then UPDATE t SET ... FROM answers WHERE ...",
    "DELETE": f"{_TO_TABLE} Then DELETE FROM t USING answers WHERE ...",
}


def _no_calls_in(kind: str) -> UnsupportedQueryError:
    return UnsupportedQueryError(
        f"{kind} with LLM calls is not supported. {_REMEDIES.get(kind, _TO_TABLE)}"
    )


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
class _Run:
    """One statement on its way, and what it has cost so far."""

    source: Source
    database: Database
    scratch: Scratch
    asker: Asker
    defaults: Sampling
    aggregates: Aggregates
    stages: list[StageReport] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    _kinds: Counter[str] = field(default_factory=Counter)

    def statement(self, tree: exp.Expr) -> pa.Table:
        _check_statement(tree)
        check_forms(tree)
        check(self.database, tree)
        names = result_names(self.database, self.source, tree)
        table = self._innermost_first(tree)
        return table if names is None else table.rename_columns(names)

    def _innermost_first(self, tree: exp.Expr) -> pa.Table:
        while (select := next_select(tree)) is not None:
            sql = self._select(select, outermost=select is tree)
            if isinstance(sql, exp.Expr):
                tree = _replaced(tree, select, sql)
            elif select is tree:
                return self.database.fetch(sql)
            else:
                select.replace(exp.select("*").from_(self.scratch.table(sql)))
        return self.database.fetch(to_sql(tree))

    def _select(self, select: exp.Select, outermost: bool) -> str | exp.Expr:
        """Run the stages of a SELECT and give the SQL of its rows.

        Or, before that, another SELECT that has to take its place.
        """
        context = context_of(select)
        names = self._names(select, context, outermost)
        select = move_join_conditions(select)
        check_places(select)
        sources = read_sources(self.database, select, context)
        normal = normalize(select, sources, self.database, context)
        if len(normal.expressions) != len(names):
            raise UnsupportedQueryError(
                "An item of the select list makes several columns in a query with LLM calls. "
                "Name the columns instead."
            )
        if asks_about_groups(normal, self.aggregates):
            return over_groups(normal, names, sources, self.aggregates)
        scope = Scope(
            self.database, self.source, context, sources, self.aggregates, self.defaults, names
        )
        plan = plan_select(normal, scope)
        rows = Rows.of(plan, context, self.database, self.scratch)
        for one in _cheapest_first(plan.filters, rows):
            self._ask_all(one.calls, rows, "filter")
            rows.alive = rows.matching(one.predicate)
        self._ask_all(plan.outputs, rows, "aggregate" if plan.aggregated else "projection")
        return rows.sql(plan.final)

    def _names(self, select: exp.Select, context: Context, outermost: bool) -> list[str]:
        try:
            return column_names(self.database, select, context)
        except QueryError as error:
            if outermost:
                raise
            # The whole query was found to be right, so this part only fails because it is alone.
            raise UnsupportedQueryError(
                f"The subquery {readable(select)[:80]} calls LLM and depends on the row around "
                f"it ({error}). Write it as a join, and call LLM on the joined rows."
            ) from error

    def _ask_all(self, calls: tuple[int, ...], rows: Rows, kind: str) -> None:
        for index in calls:
            values = rows.of_call(index)
            call = rows.plan.calls[index]
            guard = rows.plan.guards.get(index)
            wanted = rows.alive if guard is None else rows.matching(guard)
            wanted = wanted[~values.asked[wanted]]
            for needed in call.needs:  # an input that is missing gives no answer worth having
                wanted = wanted[~rows.of_call(needed).failed[wanted]]
            if len(wanted) or not values.asked.any():
                self._ask(call, rows, wanted, kind)

    def _ask(self, call: PlannedCall, rows: Rows, wanted: Int64s, kind: str) -> None:
        start = self.asker.clock()
        self._kinds[kind] += 1
        name = f"{kind} {self._kinds[kind]}"
        cells, forms = rows.cells(call.fields, wanted)
        question = Question(name, call.prompt, call.sampling, len(wanted), cells, forms)
        replies = ask(question, self.asker)
        numeric = call.index in rows.plan.numeric
        failures = rows.of_call(call.index).store(replies, wanted, call.sampling, numeric)
        self.errors += [_row_error(name, failure, cells, wanted) for failure in failures]
        if failures and self.asker.config.on_error == "raise":
            raise RequestError(failed(question, failures[0].position, failures[0].trouble))
        self.stages.append(
            _report(name, call, replies, self.asker, len(wanted), len(failures), start)
        )


def _row_error(stage: str, failure: Failure, cells: pa.Table, rows: Int64s) -> RowError:
    at, answer = failure.position, failure.answer
    inputs = {
        name: column[at].as_py()
        for name, column in zip(cells.column_names, cells.columns, strict=True)
    }
    return RowError(
        stage, int(rows[at]), inputs, failure.trouble, answer.text, answer.finish, answer.attempts
    )


def _replaced(tree: exp.Expr, select: exp.Select, by: exp.Expr) -> exp.Expr:
    if select is tree:
        return by
    select.replace(by)
    return tree


def _cheapest_first(filters: tuple[Filter, ...], rows: Rows) -> list[Filter]:
    """Filters by the characters that one row's prompts have, so that dear ones see fewer rows."""
    if len(filters) < 2:
        return list(filters)
    calls = rows.plan.calls
    cost = {
        one.predicate: sum(
            len(calls[index].prompt) + rows.characters(calls[index].fields) for index in one.calls
        )
        for one in filters
    }
    return sorted(filters, key=lambda one: cost[one.predicate])


def _report(
    name: str,
    call: PlannedCall,
    replies: Replies,
    asker: Asker,
    rows: int,
    errors: int,
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
        errors=errors,
        seconds=asker.clock() - start,
        solver_seconds=replies.solver_seconds,
        order=asker.config.order,
        phr=replies.phr,
    )
