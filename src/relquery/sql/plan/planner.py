"""Plans one SELECT with LLM calls: base rows, filters, calls, and the query over their answers.

    base     FROM and all predicates without calls, as a table with a row number
    filters  the predicates with calls, each on the rows that the others kept
    cut      which of the remaining rows the SELECT returns, if that needs no other calls: calls of
             ORDER BY, QUALIFY and DISTINCT ON
    outputs  the calls of SELECT, GROUP BY, HAVING, QUALIFY and ORDER BY, on the remaining rows
    final    the SELECT itself over base rows and answers

Calls with equal prompt, fields and sampling are one call, wherever they appear, and run once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from relquery.config import PromptForm
from relquery.errors import UnsupportedQueryError
from relquery.prompt import Sampling
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check, Note, checks_in, note_to_write
from relquery.sql.form.guards import Condition, conditions_of
from relquery.sql.form.limits import CUTS, LIMITS, cut_of, early_limits, in_base_order
from relquery.sql.form.normalize import conjuncts, without_alias
from relquery.sql.form.places import note_places
from relquery.sql.functions.task import BAGS, MODULES, Task, task_of
from relquery.sql.host.database import Database
from relquery.sql.plan.asking import Part
from relquery.sql.plan.fields import Field, Given, name_fields, sides_of
from relquery.sql.plan.keys import Keys, declared_keys
from relquery.sql.plan.needs import Need, needs_in
from relquery.sql.plan.rewrite import Rewriter, note_wholes
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.from_clause import Sources, from_only, is_star, star_columns
from relquery.sql.read.scopes import Context, calls_in, has_call
from relquery.sql.read.source import Source, call_number, to_sql, unnumbered

_CLAUSES = ("expressions", "distinct", "group", "having", "qualify", "windows", *LIMITS)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A distinct call. needs: the answers that its fields read. keys: see `declared_keys`."""

    index: int
    text: str
    task: Task
    fields: tuple[Field, ...]
    needs: tuple[Need, ...]
    keys: Keys = field(default=tuple, compare=False)

    @property
    def prompt(self) -> str:
        """The prompt to show."""
        return self.task.prompt

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn."""
        return self.task.sampling

    def in_form(self, default: PromptForm) -> PlannedCall:
        """The call as it is sent; see Task."""
        return replace(self, task=self.task.in_form(default))

    @property
    def is_pinned(self) -> bool:
        """Whether the prompt's text fixes the place of all fields."""
        places = {part for part in self.task.query if isinstance(part, int)}
        return bool(self.fields) and len(places) == len(self.fields)

    @property
    def modules(self) -> tuple[int, ...]:
        """The fields that are modules, by their place."""
        return tuple(at for at, field in enumerate(self.fields) if field.is_module)


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate with calls. part: all calls that it needs."""

    predicate: exp.Expr
    part: Part


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows a SELECT returns. select: their numbers, from all rows that passed the filters.

    part: the calls that decide it. stops: whether the filters can stop at a limit, because the
    rows can be ordered beforehand.
    """

    select: exp.Select
    part: Part
    stops: bool


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """How one SELECT is run. All expressions except `base` read the table `ours.ROWS`.

    base: the columns that everything else reads. cut: None if the final SELECT decides what it
    returns. final: the SELECT itself, without what `cut` does. written: for each column of the
    final SELECT, how it is cast when written to a table; None if DuckDB casts it by itself.
    """

    base: exp.Select
    calls: tuple[PlannedCall, ...]
    filters: tuple[Filter, ...]
    cut: Cut | None
    outputs: Part
    aggregated: bool
    final: exp.Select
    written: tuple[Note | None, ...]

    @property
    def kind(self) -> str:
        """What the stages of its outputs are called."""
        return "aggregate" if self.aggregated else "projection"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The calls of all stages, in the order in which they are asked."""
        cut = () if self.cut is None else (self.cut.part,)
        return (*(one.part for one in self.filters), *cut, self.outputs)


@dataclass(frozen=True, slots=True)
class Scope:
    """The context for planning a SELECT. names: its column names."""

    database: Database
    source: Source
    context: Context
    sources: Sources
    aggregates: Aggregates
    names: list[str]


def plan_select(select: exp.Select, scope: Scope) -> SelectPlan:
    """Plan a normalized SELECT.

    Raises QueryError for a malformed call, UnsupportedQueryError for an unsupported form.
    """
    note_places(select)
    note_wholes(select, scope.aggregates)
    calls = _Calls(select, scope)
    where = select.args.get("where")
    predicates = conjuncts(where.this if where else None)
    filters = tuple(calls.filter(part) for part in predicates if has_call(part))
    early = early_limits(select, scope.names, scope.aggregates)
    limits = early if early and not filters else {}
    cut = None if limits else _cut(select, scope, calls, stops=early is not None)
    done = LIMITS if limits else () if cut is None else CUTS
    left = [clause for clause in _CLAUSES if clause not in done]
    final = _final(select, scope, calls, left, is_cut=cut is not None)
    plain = [part for part in predicates if not has_call(part)]
    return SelectPlan(
        base=_base(select, calls.rewriter.base, plain, limits),
        calls=tuple(calls.planned),
        filters=filters,
        cut=cut,
        outputs=calls.part(_clauses(select, left), select, [final]),
        aggregated=scope.aggregates.in_select(select),
        final=final,
        written=tuple(note_to_write(without_alias(item)) for item in select.expressions),
    )


def _cut(select: exp.Select, scope: Scope, calls: _Calls, stops: bool) -> Cut | None:
    """What decides which rows a SELECT returns, if this saves calls."""
    given = cut_of(select, scope.names, scope.aggregates)
    if given is None:
        return None
    others = map(without_alias, select.expressions)
    known = {unnumbered(call) for call in calls_in(given)}
    if not stops and all(unnumbered(call) in known for item in others for call in calls_in(item)):
        return None
    cut = _rewritten(given, (*CUTS, "order"), calls)
    cut.set("expressions", [exp.column(ours.ROW)])
    cut.set("from_", exp.From(this=exp.to_table(ours.ROWS)))
    cut.set("order", in_base_order(cut.args.get("order")))
    return Cut(cut, calls.part([given], given, [cut]), stops)


def _final(
    select: exp.Select, scope: Scope, calls: _Calls, left: list[str], is_cut: bool
) -> exp.Select:
    """The SELECT over materialised rows, with its original column names.

    left: its clauses that are not done before. is_cut: whether some are done by a cut.
    """
    final = _rewritten(select, left, calls)
    if is_cut and final.args.get("order"):
        final.set("order", in_base_order(final.args["order"]))
    items = [
        exp.alias_(without_alias(item), name, quoted=True)
        for item, name in zip(final.expressions, scope.names, strict=True)
    ]
    final.set("expressions", items)
    final.set("from_", exp.From(this=exp.to_table(ours.ROWS)))
    return final


def _rewritten(select: exp.Select, clauses: Iterable[str], calls: _Calls) -> exp.Select:
    """Some clauses of a SELECT over materialised rows."""
    found = exp.Select()
    for clause in clauses:
        node = select.args.get(clause)
        if isinstance(node, list):
            found.set(clause, [calls.rewriter.rewrite(part) for part in node])
        elif node:
            found.set(clause, calls.rewriter.rewrite(node))
    return found


def _clauses(select: exp.Select, names: Iterable[str]) -> list[exp.Expr]:
    """The given clauses that a SELECT has."""
    found = (select.args.get(name) for name in names)
    return [node for each in found if each for node in (each if isinstance(each, list) else [each])]


def _distinct(checks: list[Check]) -> tuple[Check, ...]:
    """The checks without duplicates."""
    found = {(to_sql(one.failed), to_sql(one.value), one.note): one for one in reversed(checks)}
    return tuple(reversed(found.values()))


def _base(
    select: exp.Select,
    columns: dict[str, exp.Expr],
    predicates: list[exp.Expr],
    limits: dict[str, exp.Expr],
) -> exp.Select:
    inner = from_only(select)
    items = [exp.alias_(node, name) for name, node in columns.items()]
    inner.set("expressions", items or [exp.alias_(exp.null(), ours.NOTHING)])
    if predicates:
        inner.where(*predicates, copy=False)
    for clause, node in limits.items():
        inner.set(clause, node)
    return inner


class _Calls:
    """The distinct calls of one SELECT, collected while its expressions are rewritten."""

    def __init__(self, select: exp.Select, scope: Scope) -> None:
        self.planned: list[PlannedCall] = []
        self.checks: list[Check] = []
        self.rewriter = Rewriter(
            scope.database,
            scope.context,
            scope.sources,
            frozenset(map(str.lower, scope.names)),
            self._answer,
        )
        self._select, self._scope = select, scope
        self._identities: dict[object, int] = {}
        self._by_number: dict[int, int] = {}
        self._used: dict[int, None] = {}

    def filter(self, predicate: exp.Expr) -> Filter:
        """Plan a predicate as a stage of its own."""
        rewritten = self.rewriter.rewrite(predicate)
        return Filter(rewritten, self.part([predicate], predicate, [rewritten]))

    def part(self, written: list[exp.Expr], top: exp.Expr, read: list[exp.Expr]) -> Part:
        """The calls found since the last part. written: the nodes below `top` that have them;
        read: the same, over materialised rows.
        """
        used, self._used = tuple(self._used), {}
        places: dict[int, list[tuple[Condition, ...]]] = {}
        for call in (found for node in written for found in calls_in(node)):
            index = self._by_number.get(call_number(call) or 0)
            if index in used:
                conditions = conditions_of(call, top, self._scope.aggregates)
                over_rows = (self._over_rows(one) for one in conditions)
                places.setdefault(index, []).append(tuple(over_rows))
        for node in read:
            self.checks += checks_in(node, self._scope.aggregates)
        checks, self.checks, self._used = _distinct(self.checks), [], {}
        return Part(used, places, checks)

    def _over_rows(self, condition: Condition) -> Condition:
        return replace(condition, holds=self.rewriter.rewrite(condition.holds))

    def _answer(self, node: exp.Anonymous) -> exp.Expr:
        """Plan a call and return the column of its answers."""
        number = call_number(node)
        assert number is not None
        text = self._scope.source.text(number)
        task = task_of(node)
        given = [
            Given(one, self._field(one), at in node.meta[MODULES], at in node.meta[BAGS])
            for at, argument in enumerate(node.expressions[1:])
            for one in self._expand(argument)
        ]
        values = [one.value for one in given]
        fields = name_fields(given, self._scope.sources, keep=task.has_places)
        if task.kind == "match":
            task = replace(task, sides=sides_of(given, self._scope.sources, text))
        asked = tuple((one.name, one.sql, one.is_module, one.is_bag) for one in fields)
        index = self._identities.setdefault((task, asked), len(self.planned))
        if index == len(self.planned):
            needs = needs_in(values, self._scope.aggregates)
            entries, database = self._scope.context.entries, self._scope.database
            keys = declared_keys(self._select, fields, entries, database)
            self.planned.append(PlannedCall(index, text, task, fields, needs, keys))
        self._used[index] = None
        self._by_number[number] = index
        return exp.column(ours.answer(index))

    def _expand(self, argument: exp.Expr) -> list[exp.Expr]:
        """A field, or the columns of a star."""
        if not is_star(argument):
            return [argument]
        scope = self._scope
        return star_columns(argument, scope.sources, scope.database, self._select, scope.context)

    def _field(self, argument: exp.Expr) -> exp.Expr:
        for found in self._scope.aggregates.inside(argument):
            raise UnsupportedQueryError(
                f"{to_sql(found)} is inside an LLM call. Aggregate in a subquery and call "
                "LLM on its rows: SELECT LLM('...', total) FROM (SELECT sum(x) AS total FROM t)."
            )
        if argument.find(exp.Window):
            raise UnsupportedQueryError(
                "A window function is inside an LLM call. Compute it in a subquery and "
                "call LLM on its rows."
            )
        # Lift its columns, not the whole expression: the rest is computed only for rows asked.
        value = self.rewriter.rewrite_field(argument)
        self.checks += checks_in(value, self._scope.aggregates)
        return value
