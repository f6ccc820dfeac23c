"""Runs, explains, describes or checks one statement with LLM calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from relquery.errors import PromptWarning, QueryError, RelqueryError, UnsupportedQueryError, warn
from relquery.prompt import Sampling
from relquery.sql import names as ours
from relquery.sql.analyzing import Analysis
from relquery.sql.asked import Asked, Paid, Start
from relquery.sql.execute.asker import Asker
from relquery.sql.execute.rows import Rows
from relquery.sql.explain.effort import unpriced
from relquery.sql.explain.explain import Foretelling
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.explain.inserts import check_insert
from relquery.sql.explain.rehearse import Rehearsal
from relquery.sql.explain.shares import Shares, check_stages
from relquery.sql.form.normalize import check_forms
from relquery.sql.functions.expand import Expansion
from relquery.sql.host.database import Database, Scratch
from relquery.sql.host.kept import Definition
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.check import column_names, stubbed
from relquery.sql.read.macros import Macros
from relquery.sql.read.scopes import calls_in, context_of, next_select
from relquery.sql.statements.expand import Expanded
from relquery.sql.statements.parameters import variables_set
from relquery.sql.statements.stand_ins import check_defined, stand_ins, typed
from relquery.sql.statements.statement import Calling, Defined
from relquery.sql.statements.texts import Text
from relquery.sql.statements.unnamed import with_names
from relquery.sql.walk.selecting import InStages
from relquery.sql.walk.statement import Walk, check_statement


def run(
    calling: Calling,
    database: Database,
    asker: Asker,
    defaults: Sampling,
    paid: Paid,
    start: Start = Rows.of,
) -> pa.Table:
    """The rows of a statement. paid: adds up what its calls cost. start: see Asked.

    With EXPLAIN ANALYZE: what was predicted of its stages, and what they took.
    Raises QueryError if it is wrong: before its first call, as far as that can be known.
    """
    source, text = calling.source, calling.text
    with ready(calling, database, defaults) as tree:
        if isinstance(tree, exp.Describe):
            return _described(tree, source, database, defaults)
        with Scratch(database) as scratch:
            macros = Macros(database, Aggregates.of(database, tree))
            notes, samplings = rehearsed(calling, tree, database, defaults, scratch, macros)
            for note in notes:
                warn(note, PromptWarning)
            for sampling in samplings:
                if sampling.schema is not None or sampling.stop:  # opens the backend
                    asker.backend.check(sampling)
            number = text.number if text.of > 1 else None
            asked = Asked(database, scratch, asker, paid, number, start)
            walk = Walk(source, database, macros, defaults, InStages(asked), paid.kinds)
            if text.analyzes:
                return _analyzed(tree, walk, asked, Rehearsal(database, scratch, macros.aggregates))
            done = walk.statement(tree.copy())
            asked.check_outer(done.checks)
            table = asked.result(done.sql)
    return table if done.names is None else table.rename_columns(done.names)


def _analyzed(tree: exp.Expr, walk: Walk[Rows], asked: Asked, rehearsal: Rehearsal) -> pa.Table:
    """Run a statement; what was predicted of its stages, and what they took."""
    analysis = Analysis(asked)
    with analysis.measured():
        done = walk.statement(tree.copy())
        asked.check_outer(done.checks)
    foretold = analysis.foretelling(rehearsal)
    selects = InStages(foretold)
    again = Walk(walk.source, walk.database, walk.macros, walk.defaults, selects, analysis.kinds)
    again.statement(tree.copy())
    walk.database.execute(done.sql)
    return analysis.table(foretold)


def rehearse(calling: Calling, database: Database, defaults: Sampling) -> None:
    """Run a statement on stand-ins for its answers. Raises QueryError if it is bound to fail."""
    with ready(calling, database, defaults) as tree:
        if not isinstance(tree, exp.Describe):
            with Scratch(database) as scratch:
                macros = Macros(database, Aggregates.of(database, tree))
                rehearsed(calling, tree, database, defaults, scratch, macros)


def explain(
    calling: Calling,
    database: Database,
    asker: Asker,
    defaults: Sampling,
    shares: Shares | None = None,
    *,
    costs: bool = False,
) -> SqlExplanation:
    """What a statement would ask; shares: of rows that pass. costs: whether to tell what it costs.

    Raises QueryError as `run` does.
    """
    with ready(calling, database, defaults) as tree, Scratch(database) as scratch:
        macros = Macros(database, Aggregates.of(database, tree))
        while True:
            before = None if shares is None else len(shares.missed)
            rehearsal = Rehearsal(database, scratch, macros.aggregates)
            foretold = Foretelling(rehearsal, asker, shares, costs=costs)
            walk = Walk(calling.source, database, macros, defaults, InStages(foretold))
            walk.statement(tree.copy())
            if shares is None or before == len(shares.missed):
                break
        if shares is not None:
            check_stages(shares, list(foretold.calls))
        return SqlExplanation(
            tuple(foretold.calls.values()),
            unpriced=unpriced(asker.backend),
            warnings=tuple(walk.notes),
            tells_costs=costs,
        )


def define(defined: Defined, database: Database, defaults: Sampling) -> Definition:
    """A view or macro that DuckDB has checked, and that the connection may keep."""
    check_defined_calls(defined, database, defaults)
    return replace(defined.definition, columns=check_defined(database, defined, defaults))


def check_defined_calls(defined: Defined, database: Database, defaults: Sampling) -> None:
    """Check what can be said of the calls of a view or macro by themselves. Raises QueryError."""
    _, body = defined.expanded.used[-1]
    next_select(exp.select(body.copy()) if defined.definition.kind == "MACRO" else body)
    names = set(map(str.lower, defined.definition.names))
    if defined.definition.kind == "VIEW" or not _decide(names, body):
        check_forms(Expansion(defined.expanded, database, defaults).expand(body.copy()))


def _decide(names: set[str], body: exp.Expr) -> bool:
    """Whether parameters of a macro are prompts or options of a call."""
    for call in calls_in(body):
        prompts = [one for one in call.expressions if isinstance(one, exp.PropertyEQ | exp.Kwarg)]
        for argument in [*call.expressions[:1], *prompts]:
            if any(column.name.lower() in names for column in argument.find_all(exp.Column)):
                return True
    return False


@contextmanager
def place(text: Text) -> Iterator[None]:
    """A block for one statement of several: errors say which one they are about."""
    try:
        yield
    except RelqueryError as error:
        if text.of > 1:
            error.args = (f"In statement {text.number} of {text.of}: {error}", *error.args[1:])
        raise


def check_form(calling: Calling, database: Database, defaults: Sampling) -> None:
    """Check a statement as far as that is possible without its tables. Raises QueryError."""
    check_option(calling)
    if not isinstance(calling.tree, exp.Describe):
        check_statement(calling.tree)
        next_select(calling.tree)
    tree = Expansion(calling.source, database, defaults).expand(calling.tree.copy())
    _check_objects(tree, calling)
    check_forms(tree)


def check_option(calling: Calling) -> None:
    """Raises UnsupportedQueryError for EXPLAIN with an option other than ANALYZE."""
    if calling.text.option and not calling.text.only_analyzes:
        raise UnsupportedQueryError(
            f"EXPLAIN {calling.text.option} with LLM calls is not supported. Write EXPLAIN to see "
            "what the query will ask, EXPLAIN (COST) to see what it costs, or EXPLAIN ANALYZE to "
            "run it and compare."
        )


@contextmanager
def ready(calling: Calling, database: Database, defaults: Sampling) -> Iterator[exp.Expr]:
    """A block in which DuckDB can read a statement's tree and describe it as written."""
    with (
        database.binding(calling.parameters.known()),
        stand_ins(database, calling.source, defaults),
        variables_set(database, calling.variables),
    ):
        written = typed(calling.written, calling.source, database, defaults)
        yield with_names(calling.tree, written, calling.definitions, calling.source, database)


def rehearsed(
    calling: Calling,
    tree: exp.Expr,
    database: Database,
    defaults: Sampling,
    scratch: Scratch,
    macros: Macros,
) -> tuple[list[str], list[Sampling]]:
    """Run a statement on stand-ins for answers. Returns (warnings about prompts, samplings)."""
    rehearsal = Rehearsal(database, scratch, macros.aggregates)
    walk = Walk(calling.source, database, macros, defaults, InStages(rehearsal))
    done = walk.statement(tree.copy())
    database.bind(done.sql)
    rehearsal.outer(done.outer)
    check_insert(database, done.sql, rehearsal.stand_ins)
    return walk.notes, rehearsal.samplings


def _described(
    tree: exp.Describe, source: Expanded, database: Database, defaults: Sampling
) -> pa.Table:
    """What DESCRIBE says of a query, with its calls as they are written."""
    query = tree.this
    if not isinstance(query, exp.Select) or query.args.get("with_"):
        query = exp.select("*").from_(query.subquery(ours.ROWS))
    query = typed(query, source, database, defaults)
    assert isinstance(query, exp.Select)
    names = column_names(database, source, query, context_of(query))
    table = database.fetch(f"DESCRIBE {stubbed(query)}")
    return table.set_column(0, table.schema.field(0), pa.array(names, pa.string()))


def _check_objects(tree: exp.Expr, calling: Calling) -> None:
    """Raises QueryError for a Python object that no function has taken as its argument."""
    for left in tree.find_all(exp.Placeholder):
        raise QueryError(calling.parameters.objects[left.name.lower()])
