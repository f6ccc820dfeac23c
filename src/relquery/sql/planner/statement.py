"""The planning of a statement: its SELECTs with calls from the inside out, and what remains of
it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from relquery.errors import QueryError, UnsupportedQueryError, did_you_mean
from relquery.ledger import has_one_answer
from relquery.prompt import Compared, Sampling
from relquery.sql import names as ours
from relquery.sql.binder.arguments import literal_of
from relquery.sql.binder.bind import Bound
from relquery.sql.binder.call import FIELD_NAME, OF_BRANCH, calls_in, field_name, has_call
from relquery.sql.binder.normalize import check_places, normalize
from relquery.sql.binder.sources import Context, Kinds, next_select, read_sources
from relquery.sql.binder.stand_ins import compared_in
from relquery.sql.host.database import Database, Scratch
from relquery.sql.optimizer.groups import (
    asks_about_groups,
    asks_about_windows,
    asks_beside_windows,
    over_groups,
    over_windows,
)
from relquery.sql.optimizer.reads import Lookup
from relquery.sql.optimizer.rules import optimize
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Between,
    Column,
    ComparisonExpression,
    Expression,
    Node,
    Operator,
    Query,
    Select,
    SetOperation,
)
from relquery.sql.planner.checks import answers_in, note_on
from relquery.sql.planner.conversions import OuterCheck, OuterReader, Target, convert, types_written
from relquery.sql.planner.limits import enough_of
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.planner.select import plan_select


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """The plan of a statement.

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


def plan(bound: Bound, database: Database, scratch: Scratch) -> StatementPlan:
    """Plan a bound statement. Raises QueryError before the first stage if it is wrong."""
    shell, lookup = bound.shell, Lookup(database, bound.functions)
    tree = optimize(_with_field_names(bound.query.copy()), database, bound.functions)
    share = partial(_with_shared_answers, is_exact=database.compares_exactly)
    selects: list[SelectPlan] = []
    texts: dict[str, frozenset[str]] = {}
    target = _target(bound, database)
    while (select := next_select(tree)) is not None:
        columns = bound.columns if select is tree else tuple(lookup.described(select))
        names = [name for name, _ in columns]
        is_written = _gives_rows_of(tree, select)
        wanted = types_written(names, target, shell.by_name) if is_written else []
        planned = _planned(select, columns, wanted, lookup)
        if isinstance(planned, Select):
            by = planned
        else:
            if select is tree and not shell.fills:
                return StatementPlan(bound, share([*selects, planned]), None)
            planned = replace(planned, table=scratch.reserve(planned.columns))
            selects.append(planned)
            pairs = zip(names, planned.final.items, strict=True)
            texts[planned.table] = frozenset(
                name.lower() for name, item in pairs if answers_in(item)
            )
            by = _rows_of(planned)
        if select is tree:
            tree = by
        else:
            select.replace(by)
    reader = OuterReader(lookup, texts)
    tree = reader.read(tree, target, shell.by_name)
    enough = enough_of(tree, texts, bound.functions)
    selects = [replace(select_plan, stops=enough is not None) for select_plan in selects]
    return StatementPlan(bound, share(selects), tree, tuple(reader.checks), enough)


def _target(bound: Bound, database: Database) -> Target:
    shell = bound.shell
    if not shell.fills:
        return None
    *before, name = shell.path
    table = build.table(name)
    for key, part in zip(("schema_name", "catalog_name"), reversed(before), strict=False):
        table.set(key, part)
    items = list(map(build.column, shell.columns))
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
    check_places(alone)
    sources = read_sources(database, alone, context)
    normal = normalize(alone, sources, functions)
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
    if asks_about_windows(normal) or asks_beside_windows(normal, functions):
        over = over_windows(normal, names, sources)
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
    for index, note in enumerate(notes):
        if note is not None and note.later:
            items[index] = note.read(items[index]).named(planned.columns[index][0])
    is_cast = any(note is not None and note.later for note in notes)
    return build.select(items if is_cast else [build.star()], planned.table)


def _gives_rows_of(query: Query, select: Select) -> bool:
    """Whether a query gives the rows of a SELECT unchanged, possibly with others."""
    if isinstance(query, SetOperation) and query.kind == "UNION" and query.is_all:
        return not query.modifiers and any(
            _gives_rows_of(branch, select) for branch in query.branches
        )
    return query is select


# How far answers are asked for: what the places that read them need, and what equal calls share.


def _with_shared_answers(plans: Sequence[SelectPlan], *, is_exact: bool) -> tuple[SelectPlan, ...]:
    """The plans of a statement, in which calls that can are asked as one, and no further than is
    read. is_exact: whether texts are equal only if they are the same.

    AI_FILTER('Late?', a), AI_SCORE('Late?', a)  =>  one request gives both
    WHERE LLM('Positive?', review) = 'Yes'  =>  the answer ends where it cannot become 'Yes'

    Calls that ask the same are compared with the same texts, so that equal inputs are asked once.
    Labels, typed answers and answers drawn at random are read whole. Raises QueryError where an
    answer is compared with texts of which none is a label.
    """
    calls = [call for plan in plans for call in plan.calls]
    scores = {_asks(call, call.sampling) for call in calls if call.task.kind == "score"}
    texts: dict[object, dict[str, None]] = {}
    compared: set[tuple[str, int]] = set()
    for plan in plans if is_exact else ():
        read = _comparisons(plan)
        for call in plan.calls:
            places, sampling = read[call.index], call.sampling
            is_open = not call.task.output and has_one_answer(sampling)
            if sampling.labels:
                _check_labels(call, places)
            elif is_open and all(texts for texts, _ in places):
                own = dict.fromkeys(text for texts, _ in places for text in texts)
                texts.setdefault(_asks(call, sampling), {}).update(own)
                compared |= {(plan.table, call.index)} if own else set()

    def shared(call: PlannedCall, plan: SelectPlan) -> PlannedCall:
        sampling = call.sampling
        if sampling.labels and not sampling.temperature > 0:
            scored = replace(sampling, scored=True)
            sampling = scored if _asks(call, scored, "score") in scores else sampling
        elif (plan.table, call.index) in compared:
            sampling = Compared.by(sampling, tuple(texts[_asks(call, sampling)]))
        return replace(call, task=replace(call.task, sampling=sampling))

    return tuple(
        replace(plan, calls=tuple(shared(call, plan) for call in plan.calls)) for plan in plans
    )


def _asks(call: PlannedCall, sampling: Sampling, kind: str | None = None) -> object:
    """Equal for calls that ask the same but for the order of their fields, if they are asked with
    this sampling, as this kind."""
    names = frozenset(field.name for field in call.fields)
    task = call.task
    return task.sent, sampling, kind or task.kind, task.model, task.cascade, task.pairs, names


def _check_labels(call: PlannedCall, places: Sequence[tuple[list[str], bool]]) -> None:
    labels = call.sampling.labels
    for texts, is_of_branch in places:
        if texts and not is_of_branch and not {"", *labels}.intersection(texts):
            raise QueryError(
                f"{call.text} is compared with {', '.join(map(repr, texts))}, but its labels "
                f"are {', '.join(map(repr, labels))}.{did_you_mean(texts[0], labels)}"
            )


def _comparisons(plan: SelectPlan) -> Mapping[int, list[tuple[list[str], bool]]]:
    """By call, for each place that reads its answers: the texts that it compares them with, none if
    it does not clearly compare them, and whether they are the values of a set operation."""
    trees: list[Node] = [plan.base, plan.final, *(filter_.predicate for filter_ in plan.filters)]
    trees += [] if plan.cut is None else [plan.cut.select]
    places = (place for part in plan.parts for each in part.places.values() for place in each)
    trees += [condition.holds for place in places for condition in place]
    trees += [part.value for call in plan.calls for part in call.fields]
    comparisons = defaultdict[int, list[tuple[list[str], bool]]](list)
    for column in (part for tree in trees for part in tree.find_all(Column)):
        if (call := ours.call_of(column.name)) is not None:
            around = column.ancestor(ComparisonExpression, Operator)
            is_of_branch = around is not None and OF_BRANCH in around.meta
            comparisons[call].append((_compared_with(column), is_of_branch))
    return comparisons


def _compared_with(column: Column) -> list[str]:
    """The string literals that a column is compared with; empty if it is not compared."""
    comparison = column.parent
    sides = compared_in(comparison)
    is_order = isinstance(comparison, ComparisonExpression) and comparison.kind not in _EQUALITY
    if sides is None or is_order or isinstance(comparison, Between):
        return []
    texts = [literal_of(side) for side in sides if side is not column]
    return texts if all(isinstance(text, str) for text in texts) else []


_EQUALITY = (build.EQUAL, build.UNEQUAL)
