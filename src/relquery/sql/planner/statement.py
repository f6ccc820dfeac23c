"""Plans a statement: its SELECTs with calls from the inside out, and what remains of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relquery.errors import UnsupportedQueryError
from relquery.sql.binder.bind import Bound
from relquery.sql.binder.call import FIELD_NAME, calls_in, field_name, has_call
from relquery.sql.binder.normalize import check_fields, check_places, normalize
from relquery.sql.binder.sources import Context, Kinds, next_select, read_sources
from relquery.sql.host.database import Database, Scratch
from relquery.sql.optimizer.join_conditions import take_conditions
from relquery.sql.optimizer.reads import Lookup
from relquery.sql.optimizer.rules import optimize
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Query, Select, SetOperation
from relquery.sql.planner.checks import answers_in, note_on
from relquery.sql.planner.compared import with_compared, with_scores
from relquery.sql.planner.conversions import convert
from relquery.sql.planner.groups import asks_about_groups, over_groups
from relquery.sql.planner.limits import enough_of
from relquery.sql.planner.outer import OuterCheck, OuterReader, Target, types_written
from relquery.sql.planner.plan import SelectPlan
from relquery.sql.planner.select import plan_select


@dataclass(frozen=True, slots=True)
class Plan:
    """How a statement is run.

    selects: its SELECTs with calls, inner ones first. outer: the query around them, which reads
    their tables; None if the last SELECT is the whole query. enough: how many rows it returns at
    most, if it only gains rows as these tables do; else None. checks: for answers that are read
    outside the SELECT with their call.
    """

    bound: Bound
    selects: tuple[SelectPlan, ...]
    outer: Query | None
    checks: tuple[OuterCheck, ...] = ()
    enough: int | None = None


def plan(bound: Bound, database: Database, scratch: Scratch) -> Plan:
    """Plan a bound statement. Raises QueryError before the first stage if it is wrong."""
    shell, lookup = bound.shell, Lookup(database, bound.functions)
    tree = optimize(_with_field_names(bound.query.copy()), database, bound.functions)
    selects: list[SelectPlan] = []
    texts: dict[str, frozenset[str]] = {}
    target = _target(bound, database)
    while (select := next_select(tree)) is not None:
        columns = bound.columns if select is tree else tuple(lookup.described(select))
        names = [name for name, _ in columns]
        is_written = _gives_rows_of(tree, select)
        wanted = types_written(names, target, shell.by_name) if is_written else []
        found = _planned(select, columns, wanted, lookup)
        if isinstance(found, Select):
            by = found
        else:
            if select is tree and not shell.fills:
                return Plan(bound, _with_shared_answers([*selects, found], database), None)
            found = replace(found, table=scratch.reserve(found.columns))
            selects.append(found)
            pairs = zip(names, found.final.items, strict=True)
            texts[found.table] = frozenset(name.lower() for name, item in pairs if answers_in(item))
            by = _rows_of(found)
        if select is tree:
            tree = by
        else:
            select.replace(by)
    reader = OuterReader(lookup, texts)
    tree = reader.read(tree, target, shell.by_name)
    enough = enough_of(tree, texts, bound.functions)
    selects = [replace(one, stops=enough is not None) for one in selects]
    shared = _with_shared_answers(selects, database)
    return Plan(bound, shared, tree, tuple(reader.checks), enough)


def _with_shared_answers(selects: list[SelectPlan], database: Database) -> tuple[SelectPlan, ...]:
    """The plans, in which calls that can are asked as one, and no further than is read."""
    scored = with_scores(selects)
    return tuple(with_compared(scored) if database.compares_exactly else scored)


def _target(bound: Bound, database: Database) -> Target:
    shell = bound.shell
    if not shell.fills:
        return None
    *before, name = shell.path
    table = build.table(name)
    for key, part in zip(("schema_name", "catalog_name"), reversed(before), strict=False):
        table.set(key, part)
    items: list[Expression] = [
        parser().expression(name) if name.startswith("#") else build.column(name)
        for name in shell.columns
    ]
    return database.columns(parser().sql(build.select(items or [build.star()], table)))


def _planned(
    select: Select, columns: tuple[tuple[str, str], ...], wanted: Sequence[str], lookup: Lookup
) -> SelectPlan | Select:
    """The plan of a SELECT in a statement, or the SELECT that must replace it first.

    wanted: types of the columns that its rows are written to unchanged.
    """
    database, functions = lookup.database, lookup.functions
    context = Context.of(select)
    alone = select.copy()
    alone.entries = ()
    plain = take_conditions(alone)
    check_places(plain)
    sources = read_sources(database, plain, context)
    normal = normalize(plain, sources, functions)
    check_fields(normal)
    names = [name for name, _ in columns]
    if len(normal.items) != len(names):
        raise UnsupportedQueryError(
            "An item of the select list expands to several columns, which a query with LLM "
            "calls does not support. Name the columns instead."
        )
    if asks_about_groups(normal, sources, functions):
        over = over_groups(normal, names, sources, functions)
        over.entries = [entry.copy() for entry in select.entries]
        return over
    converted = convert(normal, Kinds(database, context, normal), functions, wanted)
    return plan_select(converted, sources, columns, context, lookup)


def _with_field_names(tree: Query) -> Query:
    """Note how a field of a call is written whose subquery, with calls, will be run beforehand."""
    for call in calls_in(tree):
        for argument in call.fields:
            if has_call(argument) and argument.find(Query) is not None:
                argument.meta.setdefault(FIELD_NAME, field_name(argument))
    return tree


def _rows_of(planned: SelectPlan) -> Select:
    """The rows of a planned SELECT's table, its columns cast as noted."""
    notes = [note_on(item) for item in planned.final.items]
    items: list[Expression] = [build.column(name) for name, _ in planned.columns]
    for at, note in enumerate(notes):
        if note is not None and note.later:
            items[at] = note.read(items[at]).named(planned.columns[at][0])
    is_cast = any(note is not None and note.later for note in notes)
    return build.select(items if is_cast else [build.star()], planned.table)


def _gives_rows_of(query: Query, select: Select) -> bool:
    """Whether a query gives the rows of a SELECT unchanged, possibly with others."""
    if isinstance(query, SetOperation) and query.kind == "UNION" and query.is_all:
        return not query.modifiers and any(_gives_rows_of(one, select) for one in query.branches)
    return query is select
