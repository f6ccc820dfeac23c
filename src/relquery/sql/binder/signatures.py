"""Replaces the functions that users write by calls and the SQL around them; see llm_functions.

From here on a query has only one kind of call; see Task.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import LlmFunction, shown
from relquery.sql.binder.call import FIELD_NAME, WRITTEN, asking_in
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.llm_functions import FUNCTIONS
from relquery.sql.binder.numbers import compared_with
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, read_sources, with_both_sides
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Cast, Column, Constant, Expression, Function, Node, Select

_KINDS = {"ai_filter": "BOOLEAN", "ai_score": "DOUBLE", "ai_rank": "BIGINT"}
_REMEDIES = {
    "BOOLEAN": "Use it as a condition by itself, with NOT before it for the others.",
    "DOUBLE": "Compare it with a number.",
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
        name, defaults = node.name.lower(), self.defaults
        if name != "llm":
            defaults = replace(defaults, labels=(), schema=None)

        def knows(column: Column) -> bool:
            return self._knows(column, node)

        bind, own = FUNCTIONS[name]
        is_aggregate = self.functions.is_aggregate
        function = LlmFunction(node, self.database, defaults, knows, is_aggregate, own)
        value = bind(function)
        self._check_compared(function, value)
        self.notes += [note for note in function.notes if note not in self.notes]
        written = str(node.meta[WRITTEN])
        value.meta[WRITTEN] = name.upper() + written[len(name) :]
        if FIELD_NAME in node.meta:
            value.meta[FIELD_NAME] = node.meta[FIELD_NAME]
        node.replace(value.named(node.alias))

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
            self._sources[id(select)] = None
            with suppress(QueryError):
                found = sources_of(select, with_both_sides(select), self.database)
                self._sources[id(select)] = found
        return self._sources[id(select)]

    def _check_compared(self, function: LlmFunction, value: Expression) -> None:
        """Raises QueryError where a function's value is compared with a text that cannot be of its
        type.

        AI_FILTER('Is it late?', message) = 'maybe'     'maybe' is not a BOOLEAN

        DuckDB would find that when it runs the comparison, after the calls.
        """
        others = compared_with(function.node) or ()
        texts = [one for one in others if isinstance(one, Constant) and one.kind == "STRING"]
        kind = _KINDS.get(function.name, "")
        if texts and isinstance(value, Cast) and not kind:
            kind = parser().sql(value.to)
        for other in texts if kind else ():
            tried = build.cast(other.copy(), parser().type(kind), is_try=True)
            if self.database.fetch(f"SELECT {parser().sql(tried)}").column(0).null_count:
                raise QueryError(
                    f"{function.written} is compared with {shown(other)}, but it is of type "
                    f"{kind}. {_REMEDIES.get(kind, 'Compare it with a value of that type.')}"
                )


def sources_of(select: Select, probe: Select, database: Database) -> Sources:
    """What a SELECT reads, before all of its functions are bound. probe: its FROM clause."""
    context = Context.of(select)
    for part in (probe, *context.entries):
        unbound(part)
    return read_sources(database, probe, context)


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
