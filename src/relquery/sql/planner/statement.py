"""Plans a statement: its SELECTs with calls from the inside out, and what remains of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relquery.errors import UnsupportedQueryError
from relquery.sql.binder.bind import Bound
from relquery.sql.binder.call import FIELD_NAME, calls_in, field_name, has_call
from relquery.sql.binder.normalize import check_fields, check_places, normalize
from relquery.sql.binder.scopes import Context, next_select
from relquery.sql.binder.sources import Kinds, describe, read_sources
from relquery.sql.host.database import Database, Scratch
from relquery.sql.optimizer.join_conditions import take_conditions
from relquery.sql.optimizer.rules import optimize
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Query, Select, SetOperation, Table
from relquery.sql.planner.checks import Note, answers_in
from relquery.sql.planner.compared import check_labels, note_compared, with_equal_texts, with_scores
from relquery.sql.planner.conversions import convert
from relquery.sql.planner.groups import asks_about_groups, over_groups
from relquery.sql.planner.outer import OuterCheck, OuterReader
from relquery.sql.planner.plan import SelectPlan
from relquery.sql.planner.select import Scope, plan_select
from relquery.sql.planner.stops import enough_of


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
    planner = _Planner(bound, database, scratch)
    tree = optimize(_with_field_names(bound.query.copy()), database, bound.functions)
    selects: list[SelectPlan] = []
    texts: dict[str, frozenset[str]] = {}
    target = planner.target()
    while (select := next_select(tree)) is not None:
        found = planner.select(select, tree, target)
        if isinstance(found, Select):
            tree = _replaced(tree, select, found)
            continue
        if select is tree and not bound.shell.fills:
            return Plan(bound, _with_shared_answers([*selects, found]), None)
        found = replace(found, table=scratch.reserve(found.columns))
        selects.append(found)
        pairs = zip(found.columns, found.final.items, strict=True)
        texts[found.table] = frozenset(
            name.lower() for (name, _), item in pairs if answers_in(item)
        )
        tree = _replaced(tree, select, _rows_of(found))
    reader = OuterReader(database, bound.functions, texts)
    tree = reader.read(tree, target, bound.shell.by_name)
    enough = enough_of(tree, texts, bound.functions)
    if enough is not None:
        selects = [replace(one, stops=True) for one in selects]
    return Plan(bound, _with_shared_answers(selects), tree, tuple(reader.checks), enough)


def _with_shared_answers(selects: list[SelectPlan]) -> tuple[SelectPlan, ...]:
    """The plans, in which calls that can are asked as one."""
    return tuple(with_scores(with_equal_texts(selects)))


@dataclass(frozen=True, slots=True)
class _Planner:
    bound: Bound
    database: Database
    scratch: Scratch

    def target(self) -> list[tuple[str, str]] | None:
        """(name, type) of the columns that a statement writes to."""
        shell = self.bound.shell
        if not shell.fills:
            return None
        items: list[Expression] = [
            parser().expression(name) if name.startswith("#") else build.column(name)
            for name in shell.columns
        ]
        query = build.select(items or [build.star()], _table(shell.path))
        return self.database.columns(parser().sql(query))

    def select(
        self, select: Select, tree: Query, target: list[tuple[str, str]] | None
    ) -> SelectPlan | Select:
        """The plan of a SELECT in a statement, or the SELECT that must replace it first."""
        database, functions = self.database, self.bound.functions
        context = Context.of(select)
        alone = select.copy()
        alone.entries = ()
        if select is tree:
            columns = self.bound.columns
        else:
            columns = tuple(describe(context.around(alone), database))
        wanted = _types_written(tree, select, columns, target, self.bound.shell.by_name)
        plain = take_conditions(alone)
        check_places(plain)
        sources = read_sources(database, plain, context)
        normal = normalize(plain, sources, database, context, functions)
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
        scope = Scope(database, context, sources, functions, columns)
        kinds = Kinds(database, context, normal)
        found = plan_select(convert(normal, kinds, functions, wanted), scope)
        if database.compares_exactly:
            check_labels(found)
            found = note_compared(found)
        return found


def _table(path: Sequence[str]) -> Table:
    *before, name = path
    table = build.table(name)
    for key, part in zip(("schema_name", "catalog_name"), reversed(before), strict=False):
        table.set(key, part)
    return table


def _with_field_names(tree: Query) -> Query:
    """Note how a field of a call is written whose subquery, with calls, will be run beforehand."""
    for call in calls_in(tree):
        for argument in call.fields:
            if has_call(argument) and argument.find(Query) is not None:
                argument.meta.setdefault(FIELD_NAME, field_name(argument))
    return tree


def _replaced(tree: Query, select: Select, by: Select) -> Query:
    if select is tree:
        return by
    select.replace(by)
    return tree


def _rows_of(planned: SelectPlan) -> Select:
    """The rows of a planned SELECT's table, its columns cast as noted."""
    source = build.table(planned.table)
    if not any(planned.written):
        return build.select([build.star()], source)
    pairs = zip(planned.columns, planned.written, strict=True)
    return build.select([_written(name, note) for (name, _), note in pairs], source)


def _written(name: str, note: Note | None) -> Expression:
    column = build.column(name)
    return column if note is None else note.read(column).named(name)


def _types_written(
    tree: Query,
    select: Select,
    columns: Sequence[tuple[str, str]],
    target: list[tuple[str, str]] | None,
    by_name: bool,
) -> list[str]:
    """Types of the columns that an INSERT writes a SELECT to.

    Empty if the rows of the SELECT are not written unchanged.
    """
    if target is None or not _gives_rows_of(tree, select):
        return []
    if by_name:
        known = {name.lower(): (name, kind) for name, kind in target}
        target = [known[name.lower()] for name, _ in columns if name.lower() in known]
    return [kind for _, kind in target] if len(target) == len(columns) else []


def _gives_rows_of(query: Query, select: Select) -> bool:
    """Whether a query gives the rows of a SELECT unchanged, possibly with others."""
    if isinstance(query, SetOperation) and query.kind == "UNION" and query.is_all:
        return not query.modifiers and any(_gives_rows_of(one, select) for one in query.branches)
    return query is select
