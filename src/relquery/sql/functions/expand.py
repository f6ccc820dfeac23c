"""Replaces the functions that users write by calls and the SQL around them.

    AI_FILTER('Is it late?', message)            =>  (call = 'Yes')
    AI_EXTRACT(body, 'name VARCHAR')             =>  CAST(call AS STRUCT(name VARCHAR))
    AI_AGG('What do people praise?', review)     =>  a call with list(review)
    AI_RANK('most urgent', text)                 =>  rank() OVER (ORDER BY call DESC)

From here on a query has only one kind of call; see Task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from sqlglot import exp

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.functions import groups, rows
from relquery.sql.functions.arguments import Arguments
from relquery.sql.functions.compared import check_compared
from relquery.sql.functions.making import Made, Maker
from relquery.sql.functions.settings import take_form
from relquery.sql.functions.task import TASK
from relquery.sql.host.database import Database
from relquery.sql.read.check import stub
from relquery.sql.read.from_clause import Sources, from_only, read_sources
from relquery.sql.read.scopes import Context, calls_in, context_of
from relquery.sql.read.source import AS_WRITTEN, FIELD_NAME, FUNCTION, Source, call_number

FUNCTIONS: dict[str, Callable[[Arguments, Maker], Made]] = {
    "llm": rows.complete,
    "ai_complete": rows.complete,
    "ai_filter": rows.filter_,
    "ai_classify": rows.classify,
    "ai_score": rows.score,
    "ai_extract": rows.extract,
    "ai_agg": groups.aggregate,
    "ai_summarize_agg": groups.summarize,
    "ai_rank": groups.rank,
}


@dataclass(slots=True)
class Expansion:
    """Expands the functions of one statement.

    defaults: sampling for calls that set nothing; its labels are for LLM alone. nulls: by number of
    a call, SQL that stands for the function's value; none for text. notes: warnings about prompts.
    """

    source: Source
    database: Database
    defaults: Sampling
    nulls: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def expand(self, tree: exp.Expr) -> exp.Expr:
        """The statement with calls in place of functions. Raises QueryError for wrong arguments."""
        whole = exp.Paren(this=tree)
        for node in reversed(list(calls_in(tree))):  # inner ones first
            if TASK not in node.meta:
                self._expand(node)
        expanded: exp.Expr = whole.this
        expanded.pop()
        return expanded

    def _expand(self, node: exp.Anonymous) -> None:
        number = call_number(node) or 0
        function = str(node.meta[FUNCTION])
        given = Arguments.of(node, self.source.text(number))
        defaults = self.defaults if function == "llm" else _without_labels(self.defaults)
        form = take_form(given)
        maker = Maker(node, self.database, defaults, lambda column: self._knows(column, node), form)
        made = FUNCTIONS[function](given, maker)
        if made.kind != "VARCHAR":
            self.nulls[number] = made.null
            check_compared(node, made, given.written, self.database)
        self.notes += [note for note in maker.notes if note not in self.notes]
        made.value.meta[AS_WRITTEN] = function.upper() + given.written[len(function) :]
        if FIELD_NAME in node.meta:
            made.value.meta[FIELD_NAME] = node.meta[FIELD_NAME]
        _put(node, made.value)

    def _knows(self, column: exp.Column, node: exp.Expr) -> bool:
        """Whether a FROM clause around a call has a column; also if DuckDB must say."""
        select = node.find_ancestor(exp.Select)
        while select is not None:
            sources = self._sources(select)
            if sources is None or _has(sources, column):
                return True
            select = select.find_ancestor(exp.Select)
        return False

    def _sources(self, select: exp.Select) -> Sources | None:
        context = context_of(select)
        entries = tuple(cast(exp.CTE, stub(entry)) for entry in context.entries)
        probe = stub(from_only(select))
        assert isinstance(probe, exp.Select)
        for join in probe.args.get("joins") or ():
            if join.kind in ("SEMI", "ANTI"):  # its condition sees both tables
                join.set("kind", None)
        try:
            return read_sources(self.database, probe, Context(entries, context.recursive))
        except QueryError:
            return None


def _without_labels(defaults: Sampling) -> Sampling:
    return replace(defaults, labels=(), schema=None)


def _put(node: exp.Anonymous, value: exp.Expr) -> None:
    """Put a function's value in its place, also in that of the FILTER that it has taken."""
    clause = node.parent
    is_taken = isinstance(clause, exp.Filter) and node.arg_key == "this"
    (clause if is_taken and clause is not None else node).replace(value)


def _has(sources: Sources, column: exp.Column) -> bool:
    if not column.table:
        return sources.has(column.name)
    return any(
        alias.lower() == column.table.lower() and column.name.lower() in map(str.lower, columns)
        for alias, columns in sources.columns.items()
    )
