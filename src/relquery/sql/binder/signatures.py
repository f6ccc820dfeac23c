"""Replaces the functions that users write by calls and the SQL around them.

    AI_FILTER('Is it late?', message)            =>  (call = 'Yes')
    AI_EXTRACT(body, 'name VARCHAR')             =>  CAST(call AS STRUCT(name VARCHAR))
    AI_AGG('What do people praise?', review)     =>  a call with list(review)
    AI_RANK('most urgent', text)                 =>  rank() OVER (ORDER BY call DESC)

From here on a query has only one kind of call; see Task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder import groups, rows
from relquery.sql.binder.arguments import Arguments, shown
from relquery.sql.binder.call import FIELD_NAME, WRITTEN, asking_in
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.making import Made, Maker
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.settings import take_form, take_nulls
from relquery.sql.binder.sources import Sources, read_sources, with_both_sides
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Between,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    Node,
    Operator,
    Select,
)

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
class Signatures:
    """Binds the functions of one statement.

    defaults: sampling for calls that set nothing; its labels are for LLM alone. notes: warnings
    about prompts.
    """

    database: Database
    functions: FunctionCatalog
    defaults: Sampling
    notes: list[str] = field(default_factory=list)
    _sources: dict[int, Sources | None] = field(default_factory=dict)

    def bind(self, holder: Node) -> None:
        """Put calls in the place of functions below a node. Raises QueryError for wrong
        arguments."""
        for node in reversed(list(asking_in(holder))):  # inner ones first
            self._bind(node)

    def _bind(self, node: Function) -> None:
        function = node.name.lower()
        given = Arguments.of(node)
        defaults = self.defaults
        if function != "llm":
            defaults = replace(defaults, labels=(), schema=None)
        form, nulls = take_form(given), take_nulls(given)
        is_aggregate = self.functions.is_aggregate

        def knows(column: Column) -> bool:
            return self._knows(column, node)

        maker = Maker(node, self.database, defaults, knows, is_aggregate, form, nulls)
        made = FUNCTIONS[function](given, maker)
        if made.kind != "VARCHAR":
            check_compared(node, made, given.written, self.database)
        self.notes += [note for note in maker.notes if note not in self.notes]
        written = str(node.meta[WRITTEN])
        made.value.meta[WRITTEN] = function.upper() + written[len(function) :]
        if FIELD_NAME in node.meta:
            made.value.meta[FIELD_NAME] = node.meta[FIELD_NAME]
        node.replace(made.value.named(node.alias))

    def _knows(self, column: Column, node: Node) -> bool:
        """Whether a FROM clause around a call has a column; also if DuckDB must say."""
        for select in node.ancestors():
            if isinstance(select, Select):
                sources = self._of(select)
                if sources is None or sources.has_column(column):
                    return True
        return False

    def _of(self, select: Select) -> Sources | None:
        if id(select) not in self._sources:
            probe = with_both_sides(select)
            self.unbound(probe)
            context = Context.of(select)
            for entry in context.entries:
                self.unbound(entry)
            try:
                self._sources[id(select)] = read_sources(self.database, probe, context)
            except QueryError:
                self._sources[id(select)] = None
        return self._sources[id(select)]

    @staticmethod
    def unbound(node: Node) -> None:
        """Put NULL in the place of functions that are not bound yet, where their columns exist."""
        for one in reversed(list(asking_in(node))):
            kind = _KINDS.get(one.name.lower(), "VARCHAR")
            value: Expression = build.cast(build.null(), build.plain_type(kind))
            read = [part.copy() for part in one.values if part.find(Column) is not None]
            if read:
                whole = build.function("row", *(part.named("") for part in read))
                value = build.when(build.operation(build.IS_NULL, whole), value)
            one.replace(value.named(one.alias))


_KINDS = {"ai_filter": "BOOLEAN", "ai_score": "DOUBLE", "ai_rank": "BIGINT"}


def check_compared(node: Node, made: Made, written: str, database: Database) -> None:
    """Raises QueryError where a function's value is compared with a text that cannot be of its
    type.

    AI_FILTER('Is it late?', message) = 'maybe'     'maybe' is not a BOOLEAN

    DuckDB would find that when it runs the comparison, after the calls.
    """
    for text in _texts_beside(node):
        value = build.cast(text.copy(), parser().type(made.kind), is_try=True)
        if database.fetch(f"SELECT {parser().sql(value)}").column(0).null_count:
            raise QueryError(
                f"{written} is compared with {shown(text)}, but it is of type {made.kind}. "
                f"{_REMEDIES.get(made.kind, 'Compare it with a value of that type.')}"
            )


_REMEDIES = {
    "BOOLEAN": "Use it as a condition by itself, with NOT before it for the others.",
    "DOUBLE": "Compare it with a number.",
}


def _texts_beside(node: Node) -> Iterator[Expression]:
    """String literals that a node is compared with."""
    comparison = node.parent
    is_list = isinstance(comparison, Operator) and comparison.kind in (build.IN, build.NOT_IN)
    if comparison is not None and (is_list or isinstance(comparison, Comparison | Between)):
        for other in comparison.children():
            if other is not node and isinstance(other, Constant) and other.kind == "STRING":
                yield other
