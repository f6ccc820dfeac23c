"""What DuckDB says about parts of a statement whose calls are not answered yet."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.errors import QueryError
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.kinds import Kinds
from relquery.sql.binder.normalize import normalize
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, describe, read_sources, star_columns
from relquery.sql.host.database import Database
from relquery.sql.parser.tree import Expression, Node, Query, Select, Star


@dataclass(frozen=True, slots=True)
class Lookup:
    """Asks DuckDB, with stand-ins for calls. None means that it does not say: the part depends on
    a row of an outer query, or has a form that only DuckDB understands."""

    database: Database
    functions: FunctionCatalog

    def sources(self, select: Select, place: Node | None = None) -> Sources | None:
        """The tables of a FROM clause, read at `place` if it is not part of the statement."""
        try:
            return read_sources(self.database, select, Context.of(place or select))
        except QueryError:
            return None

    def columns(self, query: Query, place: Node | None = None) -> list[tuple[str, str]] | None:
        """(name, type) of the columns of a query."""
        alone = query.copy()
        alone.entries = ()
        try:
            return describe(Context.of(place or query).around(alone), self.database)
        except QueryError:
            return None

    def normal(self, select: Select) -> Select | None:
        """A normalized copy of a SELECT, in which no name stands for an item of its list."""
        sources = self.sources(select)
        if sources is None:
            return None
        try:
            return normalize(select, sources, self.database, Context.of(select), self.functions)
        except QueryError:
            return None

    def items(self, select: Select) -> list[Expression] | None:
        """Copies of the select list, with the columns that each star stands for."""
        sources = self.sources(select)
        found: list[Expression] = []
        for item in select.items:
            if not isinstance(item, Star):
                found.append(item.copy())
            elif sources is None:
                return None
            else:
                try:
                    context = Context.of(select)
                    found += star_columns(item, sources, self.database, select, context)
                except QueryError:
                    return None
        return found

    def kinds(self, select: Select) -> Kinds:
        """Types of expressions over the FROM clause of a SELECT."""
        return Kinds(self.database, Context.of(select), select)

    def stands_alone(self, query: Query) -> bool:
        """Whether a query is independent of the rows of an outer query."""
        return self.columns(query) is not None
