"""Takes a query apart: runs its SELECTs with calls from the inside out, each in stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.prompt import Sampling
from relquery.sql.answers.conversions import convert
from relquery.sql.answers.kinds import Kinds
from relquery.sql.answers.outer import OuterCheck, OuterReader
from relquery.sql.answers.writing import answer_columns, read_rows, types_written
from relquery.sql.form.groups import asks_about_groups, over_groups
from relquery.sql.form.joins import over_joined, take_conditions
from relquery.sql.form.normalize import check_forms, check_places, normalize
from relquery.sql.functions.expand import Expansion
from relquery.sql.functions.naming import field_name
from relquery.sql.host.database import Database
from relquery.sql.plan.compared import check_labels, note_compared
from relquery.sql.plan.planner import Scope, SelectPlan, plan_select
from relquery.sql.read.check import (
    check,
    column_names,
    name_columns,
    result_names,
    stubbed,
    with_nulls,
)
from relquery.sql.read.from_clause import read_sources
from relquery.sql.read.macros import Macros
from relquery.sql.read.scopes import (
    calls_in,
    context_of,
    has_call,
    next_select,
    with_inside,
)
from relquery.sql.read.source import FIELD_NAME, Source, to_sql
from relquery.sql.read.targets import check_target, has_nothing_to_do, take_data_clause
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.rules import rewrite
from relquery.sql.walk.selecting import S, Selects


@dataclass(frozen=True, slots=True)
class Done:
    """What remains of a statement after its calls are answered.

    names: its column names; None to use those of `sql`. checks: for answers that are read outside
    the SELECT with their call. outer: the statement as a tree, if it is more than the SELECT with
    the last call.
    """

    sql: str
    names: list[str] | None
    checks: tuple[OuterCheck, ...] = ()
    outer: exp.Expr | None = None


@dataclass(slots=True)
class Walk(Generic[S]):
    """Walks one statement through its stages.

    defaults: sampling options for calls that do not set their own. kinds: how many stages there
    were of each kind, to number them. notes: warnings about prompts.
    """

    source: Source
    database: Database
    macros: Macros
    defaults: Sampling
    selects: Selects[S]
    kinds: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def statement(self, tree: exp.Expr) -> Done:
        """Go through all stages.

        Raises QueryError before the first stage if the statement is wrong.
        """
        check_statement(tree)
        tree = self.macros.expand(with_inside(tree), self.source.sql)
        check_forms(tree)
        functions = Expansion(self.source, self.database, self.defaults)
        tree = functions.expand(tree)
        self.notes += functions.notes
        has_data = take_data_clause(tree)
        name_columns(self.database, self.source, tree, functions.nulls)
        check(self.database, self.source, tree)
        check_target(self.database, tree)
        if has_nothing_to_do(self.database, tree):
            return Done(stubbed(tree), None)
        if not has_data:
            return Done(f"{with_nulls(self.database, self.source, tree)} WITH NO DATA", None)
        names = result_names(self.database, self.source, tree, functions.nulls)
        _note_fields(tree)
        tree = rewrite(tree, Lookup(self.database, self.source, self.macros.aggregates))
        texts: dict[str, frozenset[str]] = {}
        while (select := next_select(tree)) is not None:
            found = self._select(select, tree)
            if isinstance(found, exp.Expr):
                tree = _replaced(tree, select, found)
                continue
            plan, rows = found
            if select is tree:
                return Done(self.selects.final(rows), names)
            table = self.selects.table(rows)
            texts[table] = answer_columns(self.database, table, plan.final)
            select.replace(read_rows(self.database, table, plan.written))
        outer = OuterReader(self.database, self.macros.aggregates, texts)
        tree = outer.read(tree)
        return Done(to_sql(tree), names, tuple(outer.checks), tree)

    def _select(self, select: exp.Select, tree: exp.Expr) -> tuple[SelectPlan, S] | exp.Expr:
        """Go through the stages of a SELECT in a statement and return its plan and rows.

        If it must first be rewritten, return the SELECT that replaces it.
        """
        context = context_of(select)
        names = column_names(self.database, self.source, select, context)
        wanted = types_written(self.database, tree, select, names)
        select, joined = take_conditions(select)
        check_places(select)
        sources = read_sources(self.database, select, context)
        normal = normalize(select, sources, self.database, context, self.macros.aggregates)
        if len(normal.expressions) != len(names):
            raise UnsupportedQueryError(
                "An item of the select list expands to several columns, which a query with LLM "
                "calls does not support. Name the columns instead."
            )
        if joined is not None:
            return over_joined(normal, joined, names, sources)
        if asks_about_groups(normal, sources, self.macros.aggregates):
            return over_groups(normal, names, sources, self.macros.aggregates)
        scope = Scope(
            self.database,
            self.source,
            context,
            sources,
            self.macros.aggregates,
            names,
        )
        kinds = Kinds(self.database, context, normal)
        plan = plan_select(convert(normal, kinds, self.macros.aggregates, wanted), scope)
        if self.database.compares_exactly:
            check_labels(plan)
            plan = note_compared(plan)
        return plan, self.selects.select(plan, context, self.kinds)


def check_statement(tree: exp.Expr) -> None:
    """Raise unless a statement can have calls, i.e. needs its rows only once, while it runs."""
    if isinstance(tree, exp.Query | exp.Insert | exp.Copy):
        return
    if isinstance(tree, exp.Create) and tree.kind == "TABLE":
        return
    if isinstance(tree, exp.Create):
        raise _no_calls_in(f"CREATE {'MACRO' if tree.kind == 'FUNCTION' else tree.kind}")
    raise _no_calls_in("UNPIVOT" if tree.args.get("unpivot") else tree.key.upper())


_TO_TABLE = "Write the answers to a table first: CREATE TABLE answers AS SELECT ..., LLM(...)."
_REMEDIES = {
    "CREATE VIEW": "It asks nothing by itself. Explain a query that reads the view.",
    "CREATE MACRO": "It asks nothing by itself. Explain a query that uses the macro.",
    "UPDATE": f"{_TO_TABLE} Then UPDATE t SET ... FROM answers WHERE ...",
    "DELETE": f"{_TO_TABLE} Then DELETE FROM t USING answers WHERE ...",
}


def _no_calls_in(kind: str) -> UnsupportedQueryError:
    return UnsupportedQueryError(
        f"{kind} with LLM calls is not supported. {_REMEDIES.get(kind, _TO_TABLE)}"
    )


def _note_fields(tree: exp.Expr) -> None:
    """Note how a field of a call is written whose subquery, with calls, will be run beforehand."""
    for call in calls_in(tree):
        for argument in call.expressions[1:]:
            if argument.find(exp.Query) and has_call(argument):
                argument.meta.setdefault(FIELD_NAME, field_name(argument))


def _replaced(tree: exp.Expr, select: exp.Select, by: exp.Expr) -> exp.Expr:
    if select is tree:
        return by
    select.replace(by)
    return tree
