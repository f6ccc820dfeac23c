"""Runs, explains, describes or checks one statement with LLM calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from relquery.errors import PromptWarning, RelqueryError, UnsupportedQueryError, warn
from relquery.prompt import Sampling
from relquery.sql.analyze import Analysis
from relquery.sql.binder.bind import Bound, bind
from relquery.sql.binder.sources import stubbed
from relquery.sql.binder.statement import Calling
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dry_run import dry_run
from relquery.sql.executor.execute import CostAccumulator, Execution, Start
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.explain import Explainer, unpriced
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.explain.rows import Selectivities
from relquery.sql.host.database import Database, Scratch
from relquery.sql.parser.parse import parser
from relquery.sql.parser.statements import Text
from relquery.sql.parser.tree import Query, Select, Show
from relquery.sql.planner.statement import Plan, plan
from relquery.sql.targets import check_target, has_nothing_to_do, with_nulls


def run(
    calling: Calling,
    database: Database,
    asker: ExecutionContext,
    defaults: Sampling,
    paid: CostAccumulator,
    start: Start | None = None,
) -> pa.Table:
    """The rows of a statement. paid: adds up what its calls cost. start: see Execution.

    With EXPLAIN ANALYZE: what was predicted of its stages, and what they took.
    Raises QueryError if it is wrong: before its first call, as far as that can be known.
    """
    with ready(calling, database, defaults) as bound:
        if (query := _described(bound.query)) is not None:
            return describe_query(query, database)
        if (done := _done(bound, database)) is not None:
            return database.result(done)
        with Scratch(database) as scratch:
            found = plan(bound, database, scratch)
            rows = dry_run(found, database, scratch)
            if start is not None or calling.text.analyzes:
                rows = {}
            for note in bound.notes:
                warn(note, PromptWarning)
            check_samplings(found, asker)
            number = calling.text.number if calling.text.of > 1 else None
            kind = Analysis if calling.text.analyzes else Execution
            table = kind(database, scratch, asker, paid, number, rows, start or Rows.of).run(found)
            if calling.text.analyzes:
                return table
    if bound.shell.kind == "QUERY":
        table = table.rename_columns([name for name, _ in bound.columns])
    return table


def explain(
    calling: Calling,
    database: Database,
    asker: ExecutionContext,
    defaults: Sampling,
    shares: Selectivities | None = None,
    *,
    costs: bool = False,
) -> SqlExplanation:
    """What a statement would ask; shares: of rows that pass. costs: whether to tell what it costs.

    Raises QueryError as `run` does.
    """
    with ready(calling, database, defaults) as bound, Scratch(database) as scratch:
        if _described(bound.query) is not None or _done(bound, database) is not None:
            return SqlExplanation((), warnings=bound.notes, tells_costs=costs)
        found = plan(bound, database, scratch)
        dry_run(found, database, scratch)
        while True:
            before = None if shares is None else len(shares.missed)
            explainer = Explainer(database, scratch, asker, shares, costs=costs)
            explainer.run(found)
            if shares is None or before == len(shares.missed):
                break
        if shares is not None:
            shares.check_stages(list(explainer.calls))
        return SqlExplanation(
            tuple(explainer.calls.values()),
            unpriced=unpriced(asker.backend),
            warnings=bound.notes,
            tells_costs=costs,
        )


def check_samplings(found: Plan, asker: ExecutionContext) -> None:
    """Have the backend check how answers are to be drawn. It may open the backend."""
    for sampling in samplings_of(found):
        if sampling.schema is not None or sampling.stop:
            asker.backend.check(sampling)


def samplings_of(found: Plan) -> list[Sampling]:
    """How the answers of a statement are drawn."""
    calls = (call for select in found.selects for call in select.calls)
    return list(dict.fromkeys(call.sampling for call in calls))


def rehearse(calling: Calling, database: Database, defaults: Sampling) -> None:
    """Run a statement on stand-ins for its answers. Raises QueryError if it is bound to fail."""
    with ready(calling, database, defaults) as bound:
        if _described(bound.query) is None and _done(bound, database) is None:
            with Scratch(database) as scratch:
                dry_run(plan(bound, database, scratch), database, scratch)


@contextmanager
def ready(calling: Calling, database: Database, defaults: Sampling) -> Iterator[Bound]:
    """A block in which a statement is bound and its parameters have their values."""
    values = {name: value for name, value in calling.values.items() if name not in calling.objects}
    with database.binding(values):
        yield bind(
            calling.shell,
            calling.tree.copy(),
            calling.expansion(),
            calling.values,
            calling.objects,
            database,
            defaults,
        )


@contextmanager
def place(text: Text) -> Iterator[None]:
    """A block for one statement of several: errors say which one they are about."""
    try:
        yield
    except RelqueryError as error:
        if text.of > 1:
            error.args = (f"In statement {text.number} of {text.of}: {error}", *error.args[1:])
        raise


def check_option(calling: Calling) -> None:
    """Raises UnsupportedQueryError for EXPLAIN with an option other than ANALYZE."""
    if calling.text.option and not calling.text.only_analyzes:
        raise UnsupportedQueryError(
            f"EXPLAIN {calling.text.option} with LLM calls is not supported. Write EXPLAIN to see "
            "what the query will ask, EXPLAIN (COST) to see what it costs, or EXPLAIN ANALYZE to "
            "run it and compare."
        )


def _done(bound: Bound, database: Database) -> str | None:
    """The statement itself where it asks nothing: its table exists, or gets no rows."""
    check_target(bound.shell, database)
    if has_nothing_to_do(bound.shell, database):
        return bound.shell.around(parser().sql(stubbed(bound.query)))
    if not bound.shell.has_data:
        return f"{bound.shell.around(with_nulls(bound))} WITH NO DATA"
    return None


def _described(query: Query) -> Query | None:
    """The query that a DESCRIBE is about."""
    if not isinstance(query, Select) or not isinstance(query.source, Show):
        return None
    return query.source.query if query.source.args.get("show_type") == "DESCRIBE" else None


def describe_query(query: Query, database: Database) -> pa.Table:
    """What DESCRIBE says of a query, with its calls as they are written."""
    return database.fetch(f"DESCRIBE {parser().sql(stubbed(query))}")
