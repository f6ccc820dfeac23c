"""Execution of a query of one or more statements in order, and the explanation of one. What runs
those with calls (see run) is imported where there is one: plain SQL starts sooner without it.

All statements are checked before the first one runs, as far as that is possible: their calls, and
all else of those before which none writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from relquery.errors import LateQueryError, QueryError, RelqueryError, UnknownColumnError
from relquery.prompt import Sampling
from relquery.sql.binder.statement import Calling, Keeping, Plain, read_statement
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.host.database import Database
from relquery.sql.parser.parameters import Parameters, read_parameters
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.statements import StatementText, split
from relquery.sql.result import CostAccumulator, Result, finished
from relquery.sql.retrieval.columns import unquoted_table

if TYPE_CHECKING:
    from relquery.sql.explain.explanation import SqlExplanation


def run_query(
    sql: str,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    params: object = None,
) -> Result:
    """Run the statements of a text in order. The result has the rows of the last one.

    A statement with LLM calls that starts with EXPLAIN is explained instead, as by `explain_query`;
    one that starts with EXPLAIN ANALYZE is run and gives what was predicted and measured.
    params: values of the parameters in the text; see `Connection.sql`.

    Raises QueryError if the query is wrong, before any call is made. Issues PartialResultWarning
    if calls left rows without a value, and OrderWarning for each call whose order a guard has
    pinned. Drops all scratch tables at the end.
    """
    start, paid = context.clock(), CostAccumulator()
    table = pa.table({})
    with database.held(), translating(sql, database):
        database.kept.compared.clear()
        texts = split(sql, database)
        _check_explains(texts)
        parameters = read_parameters(params, texts, database)
        if len(texts) > 1:
            _validate_script(texts, parameters, database, context, defaults)
        for text in texts:
            paid.reasons = {}
            with paid.noted(), place(text), naming(text, database), whole_file(text, database):
                table = _run_one(text, parameters, database, context, defaults, paid)
    seconds = context.clock() - start
    if context.recording is not None:
        context.recording.finish()
    result = finished(table, paid, seconds)
    if compared := database.kept.compared:
        said = f"{', '.join(sorted(compared))} by {database.kept.compared_by()}"
        result = replace(result, report=replace(result.report, compared_by=said))
    return replace(result, query=sql, recording=context.recording)


def explain_query(
    sql: str,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    params: object = None,
    selectivity: object = None,
    *,
    costs: bool = False,
) -> SqlExplanation:
    """Report the calls a statement would make, without making any. It may start with EXPLAIN.

    selectivity: see `Connection.explain`. costs: whether to tell costs, as EXPLAIN (COST) does.

    Raises QueryError as `run_query` does, and for EXPLAIN ANALYZE, which would run the statement.
    """
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.explain.rows import Selectivities
    from relquery.sql.run import check_option, explain

    shares = Selectivities.read(selectivity)
    with database.held(), translating(sql, database):
        texts = split(sql, database)
        text = texts[0]
        if text.analyzes:
            raise QueryError(
                f"EXPLAIN {text.option} runs the statement. Write it without {text.option}, or run "
                "it without asking for an explanation."
            )
        if len(texts) > 1:
            raise _one_at_a_time(len(texts))
        if text.option is None:
            text = replace(text, given=f"EXPLAIN {text.given}", option="")
        parameters = read_parameters(params, [text], database)
        with naming(text, database):
            database.prepare(text.query)
            read = read_statement(text, database.kept, parameters)
            if isinstance(read, Keeping):
                return SqlExplanation((), "")
            if isinstance(read, Plain):
                plan = database.result(read.text.given, read.values).column(1).to_pylist()
                return SqlExplanation((), "\n".join(plan))
            check_option(read)
            return explain(read, database, context, defaults, shares, costs=costs or text.costs)


def _run_one(
    text: StatementText,
    parameters: Parameters,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    paid: CostAccumulator,
) -> pa.Table:
    """Run one statement, with what it changes in what the connection keeps."""
    database.prepare(text.query)
    read, kept = read_statement(text, database.kept, parameters), database.kept
    if isinstance(read, Calling):
        from relquery.sql.run import check_option, explain, run

        check_option(read)
        if text.option is None or text.analyzes:
            return run(read, database, context, defaults, paid)
        return explain(read, database, context, defaults, costs=text.costs).arrow()
    if isinstance(read, Keeping):
        if read.defined is None:
            read.effect(kept)
            return pa.table({})
        from relquery.sql.run import define

        new = define(read.defined, database, defaults)
        read.effect(kept)
        kept.define(new)
        return pa.table({})
    table = database.result(read.text.given, read.values)
    read.effect(kept)
    return table


@contextmanager
def place(text: StatementText) -> Iterator[None]:
    """A block for one statement of several: errors say which one they are about."""
    try:
        yield
    except RelqueryError as error:
        if text.of > 1:
            error.args = (f"In statement {text.number} of {text.of}: {error}", *error.args[1:])
        raise


@contextmanager
def translating(sql: str, database: Database) -> Iterator[None]:
    """A block for a text. Where it fails for a function of another system, the error says what to
    write here."""
    try:
        yield
    except LateQueryError:
        raise
    except QueryError as error:
        from relquery.sql.binder.other_systems import advice

        if (said := advice(sql, database)) is not None:
            raise QueryError(said) from error
        raise


@contextmanager
def naming(text: StatementText, database: Database) -> Iterator[None]:
    """A block for one statement. An unknown column raises an error that lists the right tables."""
    try:
        yield
    except UnknownColumnError as error:
        from relquery.sql.binder.bind import in_scope

        table = unquoted_table(text.query, error.column, database.functions.macros)
        raise table or in_scope(error, text.query, database) from error


@contextmanager
def whole_file(text: StatementText, database: Database) -> Iterator[None]:
    """A block for one statement. If it is interrupted while DuckDB computes on, a file that it has
    begun is removed, as DuckDB does where it ends in time."""
    file = read_shell(text.query).file if text.kind == "COPY" else None
    path = None if file is None or "://" in file else Path(file).expanduser()
    is_new = path is not None and not path.exists()
    try:
        yield
    except BaseException:
        if path is not None and is_new and database.is_ending:
            with suppress(OSError):
                path.unlink()
        raise


def _check_explains(texts: Sequence[StatementText]) -> None:
    explains = [text for text in texts if text.option is not None and not text.analyzes]
    if len(texts) > 1 and explains and (len(explains) > 1 or explains[0] is not texts[-1]):
        raise _one_at_a_time(len(texts))


def _one_at_a_time(count: int) -> QueryError:
    return QueryError(
        f"EXPLAIN stands among {count} statements. It explains one, and the others would run. "
        "Explain them one at a time; only the last of several statements may have EXPLAIN."
    )


# Checks before the first statement runs

_READS = {"SELECT", "EXPLAIN", "TRANSACTION", "PREPARE"}
_BINDABLE = {"SELECT", "INSERT", "UPDATE", "DELETE"}


def _validate_script(
    texts: Sequence[StatementText],
    parameters: Parameters,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
) -> None:
    """Raises QueryError for what is wrong whatever the statements before do."""
    from relquery.sql.binder.bind import check_calls
    from relquery.sql.binder.call import calls_in
    from relquery.sql.run import check_defined_calls, check_option, open_models, rehearse

    kept, has_asked, has_written = database.kept.copy(), False, False
    for text in texts:
        runs = text.option is None or text.analyzes
        with place(text):
            read = read_statement(text, kept, parameters)
            if isinstance(read, Calling):
                check_option(read)
                tree = read.written_out()
                check_calls(tree, read.values, read.objects, database, defaults)
                named = [(call.written, call.task) for call in calls_in(tree) if call.task.model]
                open_models(named, context, asks=runs)
            elif isinstance(read, Keeping) and read.defined is not None:
                check_defined_calls(read.defined, database, defaults)
            # What is searched is read when its statement runs.
            if has_asked and not (has_written or kept.searches(text.query)):
                if isinstance(read, Calling):
                    rehearse(read, database, defaults)
                elif isinstance(read, Plain) and text.kind in _BINDABLE:
                    database.bind(read.text.given, read.values)
        read.effect(kept)
        has_asked |= isinstance(read, Calling) and runs
        has_written |= text.kind not in _READS or text.analyzes
