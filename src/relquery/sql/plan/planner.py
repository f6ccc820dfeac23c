"""Plans one SELECT with LLM calls: base rows, filters, calls, and the query over their answers.

    base     FROM and all predicates without calls, as a table with a row number
    filters  one stage per predicate with calls, on the rows that the previous stage kept
    outputs  the calls of SELECT, GROUP BY, HAVING, QUALIFY and ORDER BY, on the remaining rows
    final    the SELECT itself over base rows and answers

Calls with equal prompt, fields and sampling are one call, wherever they appear, and run once.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.prompt import Sampling
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check, Note, checks_in, note_to_write
from relquery.sql.form.guards import guards_of
from relquery.sql.form.limits import LIMITS, early_limits
from relquery.sql.form.normalize import conjuncts, without_alias
from relquery.sql.form.places import note_places
from relquery.sql.functions.task import MODULES, Task, task_of
from relquery.sql.host.database import Database
from relquery.sql.plan.fields import Field, Given, name_fields
from relquery.sql.plan.needs import Need, needs_in
from relquery.sql.plan.rewrite import Rewriter, note_wholes
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.from_clause import Sources, from_only, is_star, star_columns
from relquery.sql.read.scopes import Context, has_call
from relquery.sql.read.source import Source, call_number, to_sql

_CLAUSES = ("expressions", "distinct", "group", "having", "qualify", "windows", *LIMITS)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A distinct call. needs: the answers that its fields read."""

    index: int
    text: str
    task: Task
    fields: tuple[Field, ...]
    needs: tuple[Need, ...]

    @property
    def prompt(self) -> str:
        """The prompt to show."""
        return self.task.prompt

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn."""
        return self.task.sampling

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
    """A predicate with calls. calls: all calls that it needs, inner ones first."""

    predicate: exp.Expr
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """How one SELECT is run. All expressions except `base` read the table `ours.ROWS`.

    base: the columns that everything else reads. final: the SELECT itself.
    guards: a condition over the rows by call; a call is made only for rows where it is true.
    checks: places where answers must be more than text. written: for each column of the final
        SELECT, how it is cast when written to a table; None if DuckDB casts it by itself.
    """

    base: exp.Select
    calls: tuple[PlannedCall, ...]
    guards: dict[int, exp.Expr]
    checks: tuple[Check, ...]
    filters: tuple[Filter, ...]
    outputs: tuple[int, ...]
    aggregated: bool
    final: exp.Select
    written: tuple[Note | None, ...]


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
    early = None if filters else early_limits(select, scope.aggregates)
    final = _final(select, scope, calls, () if early is None else LIMITS)
    outputs = calls.take_used()
    guards = calls.guards()
    plain = [part for part in predicates if not has_call(part)]
    return SelectPlan(
        base=_base(select, calls.rewriter.base, plain, early or {}),
        calls=tuple(calls.planned),
        guards=guards,
        checks=_distinct(calls.checks),
        filters=filters,
        outputs=outputs,
        aggregated=scope.aggregates.in_select(select),
        final=final,
        written=tuple(note_to_write(without_alias(item)) for item in select.expressions),
    )


def _final(select: exp.Select, scope: Scope, calls: _Calls, done: tuple[str, ...]) -> exp.Select:
    """The SELECT over materialised rows, with its original column names."""
    final = exp.Select()
    for clause in _CLAUSES:
        node = select.args.get(clause)
        if not node or clause in done:
            continue
        if isinstance(node, list):
            final.set(clause, [calls.rewriter.rewrite(part) for part in node])
        else:
            final.set(clause, calls.rewriter.rewrite(node))
    items = [
        exp.alias_(without_alias(item), name, quoted=True)
        for item, name in zip(final.expressions, scope.names, strict=True)
    ]
    final.set("expressions", items)
    final.set("from_", exp.From(this=exp.to_table(ours.ROWS)))
    calls.checks += checks_in(final, scope.aggregates)
    return final


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
        self._guards_by_number = guards_of(select, scope.aggregates)
        self._guards: dict[int, list[exp.Expr | None]] = {}
        self._used: dict[int, None] = {}

    def filter(self, predicate: exp.Expr) -> Filter:
        """Plan a predicate as a stage of its own."""
        rewritten = self.rewriter.rewrite(predicate)
        self.checks += checks_in(rewritten, self._scope.aggregates)
        return Filter(rewritten, self.take_used())

    def take_used(self) -> tuple[int, ...]:
        """The calls found since the last `take_used`, inner ones first."""
        used, self._used = tuple(self._used), {}
        return used

    def guards(self) -> dict[int, exp.Expr]:
        """Conditions, as base columns, of the calls that are not read in every row."""
        return {
            index: self.rewriter.lift(exp.or_(*conditions))
            for index, conditions in self._guards.items()
            if all(condition is not None for condition in conditions)
        }

    def _answer(self, node: exp.Anonymous) -> exp.Expr:
        """Plan a call and return the column of its answers."""
        number = call_number(node)
        assert number is not None
        text = self._scope.source.text(number)
        task = task_of(node)
        given = [
            Given(one, self._field(one), at in node.meta[MODULES])
            for at, argument in enumerate(node.expressions[1:])
            for one in self._expand(argument)
        ]
        values = [one.value for one in given]
        fields = name_fields(given, self._scope.sources, keep=task.has_places)
        asked = tuple((one.name, one.sql, one.is_module) for one in fields)
        index = self._identities.setdefault((task, asked), len(self.planned))
        if index == len(self.planned):
            needs = needs_in(values, self._scope.aggregates)
            self.planned.append(PlannedCall(index, text, task, fields, needs))
        self._used[index] = None
        self._guards.setdefault(index, []).extend(self._guards_by_number[number])
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
