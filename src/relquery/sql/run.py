"""Runs, explains or checks one statement with LLM calls, and creates views and macros."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from relquery.errors import (
    PromptWarning,
    QueryError,
    RelqueryError,
    UnsupportedQueryError,
    warn,
)
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import shortened
from relquery.sql.binder.bind import Bound, bind, check_calls, unbound
from relquery.sql.binder.call import Task, asking_in
from relquery.sql.binder.stand_ins import stubbed
from relquery.sql.binder.statement import Calling, Defined
from relquery.sql.executor.cascade import proxies_of
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dry_run import dry_run
from relquery.sql.executor.execute import Execution, Start
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.explain import Explainer, unpriced
from relquery.sql.explain.explanation import SqlExplanation, measured
from relquery.sql.explain.rows import Selectivities
from relquery.sql.host.catalog import Definition
from relquery.sql.host.database import Database, Scratch
from relquery.sql.names import quoted, quoted_text
from relquery.sql.optimizer.push_limits import number_of
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell
from relquery.sql.parser.tokens import tokenize
from relquery.sql.parser.tree import (
    Column,
    ComparisonExpression,
    Constant,
    Node,
    Query,
    Select,
    Show,
)
from relquery.sql.planner.statement import StatementPlan, plan
from relquery.sql.result import CostAccumulator


@dataclass(frozen=True, slots=True)
class _Ready:
    """A statement that a dry run has found to work. plain: how DuckDB runs it if it asks nothing;
    else its plan. rows: base rows that exist already."""

    bound: Bound
    scratch: Scratch
    plain: str = ""
    plan: StatementPlan | None = None
    rows: Mapping[int, Rows] = field(default_factory=dict)


def run(
    calling: Calling,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    paid: CostAccumulator,
    start: Start | None = None,
) -> pa.Table:
    """The rows of a statement. paid: adds up what its calls cost. start: see Execution.

    With EXPLAIN ANALYZE: what its stages took.
    Raises QueryError if it is wrong: before its first call, as far as that can be known.
    """
    with _rehearsed(calling, database, defaults) as ready:
        if ready.plan is None:
            return database.result(ready.plain)
        for note in ready.bound.notes:
            warn(note, PromptWarning)
        open_models(with_proxies(ready.plan, context), context, asks=True)
        analyzes, number = calling.text.analyzes, calling.text.number
        rows = {} if start is not None else ready.rows
        statement, before = number if calling.text.of > 1 else None, set(paid.stages)
        execution = Execution(
            database, ready.scratch, context, paid, statement, rows, start or Rows.of
        )
        if analyzes:
            database.execute(execution.answered(ready.plan)[0])
            return measured(stage for name, stage in paid.stages.items() if name not in before)
        table = execution.run(ready.plan)
    if ready.bound.shell.kind == "QUERY":
        table = table.rename_columns([name for name, _ in ready.bound.columns])
    return table


def explain(
    calling: Calling,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    shares: Selectivities | None = None,
    *,
    costs: bool = False,
) -> SqlExplanation:
    """What a statement would ask; shares: of rows that pass. costs: whether to tell what it costs.

    Raises QueryError as `run` does.
    """
    with _rehearsed(calling, database, defaults) as ready:
        notes = ready.bound.notes
        if ready.plan is None:
            return SqlExplanation((), warnings=notes, tells_costs=costs)
        contexts = open_models(with_proxies(ready.plan, context), context, asks=False)
        while True:
            before = None if shares is None else len(shares.missed)
            explainer = Explainer(database, ready.scratch, context, shares, costs=costs)
            explainer.run(ready.plan)
            if shares is None or before == len(shares.missed):
                break
        if shares is not None:
            shares.check_stages(list(explainer.calls))
        calls, unknown = tuple(explainer.calls.values()), unpriced(contexts)
        return SqlExplanation(calls, unpriced=unknown, warnings=notes, tells_costs=costs)


def rehearse(calling: Calling, database: Database, defaults: Sampling) -> None:
    """Run a statement on stand-ins for its answers. Raises QueryError if it is bound to fail."""
    with _rehearsed(calling, database, defaults):
        pass


@contextmanager
def _rehearsed(calling: Calling, database: Database, defaults: Sampling) -> Iterator[_Ready]:
    """A block in which a statement that may work can be run. Raises QueryError for others."""
    with ready(calling, database, defaults) as bound, Scratch(database) as scratch:
        if (plain := _without_calls(bound, database)) is not None:
            yield _Ready(bound, scratch, plain)
            return
        planned = plan(bound, database, scratch)
        yield _Ready(bound, scratch, plan=planned, rows=dry_run(planned, database, scratch))


@contextmanager
def ready(calling: Calling, database: Database, defaults: Sampling) -> Iterator[Bound]:
    """A block in which a statement is bound and its parameters have their values."""
    values = {name: value for name, value in calling.values.items() if name not in calling.objects}
    with database.binding(values):
        yield bind(calling, database, defaults)


def _without_calls(bound: Bound, database: Database) -> str | None:
    """The statement itself where it asks nothing: it describes a query, which has its calls as they
    are written, or its table exists, or it has no rows."""
    query, shell = bound.query, bound.shell
    source = query.source if isinstance(query, Select) else None
    is_described = isinstance(source, Show) and source.args.get("show_type") == "DESCRIBE"
    if isinstance(source, Show) and source.query is not None and is_described:
        return f"DESCRIBE {parser().sql(stubbed(source.query))}"
    if has_nothing_to_do(shell, database) or _has_no_rows(bound, database):
        return shell.around(parser().sql(stubbed(query)))
    return None


def _has_no_rows(bound: Bound, database: Database) -> bool:
    """Whether a query ends with LIMIT 0 or a condition such as 1 = 0, by which programs ask for the
    columns alone."""
    query = bound.query
    if query.limit is not None and number_of(query.limit.limit) == 0:
        return True
    if not isinstance(query, Select) or bound.functions.in_select(query):
        return False
    plain = (Constant, ComparisonExpression)
    for condition in build.conjuncts(query.where):
        if all(isinstance(node, plain) or type(node) is Node for node in condition.walk()):
            table = database.fetch(f"SELECT ({parser().sql(condition)}) IS TRUE")
            if table.column(0).to_pylist() == [False]:
                return True
    return False


def open_models(
    calls: Sequence[tuple[str, Task]], context: ExecutionContext, *, asks: bool
) -> list[ExecutionContext]:
    """The contexts of calls: what they name is opened, and raises what is wrong with it.

    calls: as written, and what they ask. asks: whether they will ask; each model then checks how
    its answers are to be drawn, and whether it can be asked at all, before the first one is paid.
    """
    contexts, names = list[ExecutionContext](), any(task.model for _, task in calls)
    for written, task in calls:
        try:
            contexts.append(context.of_call(task))
            if asks and (names or task.sampling.schema is not None or task.sampling.stop):
                contexts[-1].backend.check(task.sampling)
        except RelqueryError as error:
            if task.model is not None:
                named = f"{shortened(written)} names the model '{task.model}'."
                error.args = (f"{named} {error}", *error.args[1:])
            raise
    return contexts


def named_in(found: StatementPlan) -> list[tuple[str, Task]]:
    """The calls of a statement, as written, and what they ask."""
    return [(call.text, call.task) for select in found.selects for call in select.calls]


def with_proxies(found: StatementPlan, context: ExecutionContext) -> list[tuple[str, Task]]:
    """The same, and what they ask of proxies. Raises QueryError for what a cascade cannot be."""
    return [*named_in(found), *proxies_of(named_in(found), context.config)]


def check_option(calling: Calling) -> None:
    """Raises UnsupportedQueryError for EXPLAIN with an option other than ANALYZE."""
    words = [token.word for token in tokenize(calling.text.option or "")]
    if words not in ([], ["ANALYZE"], ["(", "ANALYZE", ")"]):
        raise UnsupportedQueryError(
            f"EXPLAIN {calling.text.option} with LLM calls is not supported. Write EXPLAIN to see "
            "what the query will ask, EXPLAIN (COST) to see what it costs, or EXPLAIN ANALYZE to "
            "run it and see what it took."
        )


# Views and macros


def define(defined: Defined, database: Database, defaults: Sampling) -> Definition:
    """A view or macro that DuckDB has checked, and that the connection may keep.

    Drops what it replaces. Raises QueryError.
    """
    check_defined_calls(defined, database, defaults)
    head, definition, query = defined.head, defined.definition, defined.body.written_out()
    if definition.kind == "MACRO":
        unbound(query)
    else:
        bound = bind(defined.body, database, defaults)
        names = [name for name, _ in bound.columns]
        columns = (*definition.names, *names[len(definition.names) :])
        query, definition = stubbed(bound.query), replace(definition, columns=columns)
    replaces, temporary = " OR REPLACE" * head.replaces, " TEMP" * head.temporary
    # A temporary one would hide it, so nothing temporary may have its name.
    for words in dict.fromkeys((f"CREATE{replaces}{temporary}", "CREATE TEMP")):
        database.execute(f"{words} {_checked(definition, query)}")
        database.execute(f"DROP {definition.kind} {quoted(definition.name)}")
    return definition


def check_defined_calls(defined: Defined, database: Database, defaults: Sampling) -> None:
    """Check what can be said of the calls of a view or macro by themselves. Raises QueryError."""
    definition, body = defined.definition, defined.body.written_out()
    names = set(map(str.lower, definition.names))
    if definition.kind == "VIEW" or not _decide(names, body):
        check_calls(body, {}, {}, database, defaults)


def _decide(names: set[str], body: Query) -> bool:
    """Whether parameters of a macro are prompts or options of a call."""
    for call in asking_in(body):
        prompts = [argument.value for argument in call.arguments if argument.name]
        for argument in [*call.values[:1], *prompts]:
            if any(column.names[0].lower() in names for column in argument.find_all(Column)):
                return True
    return False


def _checked(definition: Definition, query: Query) -> str:
    """The definition with values of their types for its calls, so that DuckDB can check it."""
    name = quoted(definition.name)
    if definition.kind == "VIEW":
        names = ", ".join(map(quoted, definition.names))
        return f"VIEW {name}{f'({names})' if names else ''} AS {parser().sql(query)}"
    assert isinstance(query, Select)
    parameters = ", ".join(map(quoted, definition.names))
    return f"MACRO {name}({parameters}) AS ({parser().sql(query.items[0])})"


# What a statement writes to


def has_nothing_to_do(shell: Shell, database: Database) -> bool:
    """Whether a statement creates a table IF NOT EXISTS, and the table exists.

    Raises QueryError if a table to create exists, or if a file's folder does not exist.
    """
    if shell.file is not None and "://" not in shell.file:
        folder = Path(shell.file).expanduser().parent
        if not folder.is_dir():
            raise QueryError(
                f"{shell.file} cannot be written: the folder {folder} does not exist. Create it "
                "first."
            )
    if shell.kind != "CREATE TABLE" or shell.replaces or not _is_there(shell, database):
        return False
    if not shell.if_not_exists:
        name = shell.target
        raise QueryError(
            f"The table {name} already exists. Write CREATE OR REPLACE TABLE {name} to replace "
            "it, or use another name."
        )
    return True


def _is_there(shell: Shell, database: Database) -> bool:
    """Whether a table or view with this name exists."""
    *before, name = map(quoted_text, shell.path)
    places = [("current_database()", "current_schema()")]
    if shell.temporary:
        places = [("'temp'", "'main'")]
    elif len(before) > 1:
        places = [(before[0], before[1])]
    elif before:  # `a` in `a.t` is a schema or another database
        places = [("current_database()", before[0]), (before[0], "'main'")]
    named = " OR ".join(
        f"(lower(database_name) = lower({of}) AND lower(schema_name) = lower({schema}))"
        for of, schema in places
    )
    table = database.fetch(
        "SELECT 1 FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views()) "
        f"WHERE lower(name) = lower({name}) AND ({named})"
    )
    return bool(table.num_rows)
