"""What DuckDB says about parts of a statement whose calls are not answered yet."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.answers.kinds import Kinds
from relquery.sql.form.normalize import normalize
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.check import columns_of_query, stub
from relquery.sql.read.from_clause import Sources, from_only, is_star, read_sources, star_columns
from relquery.sql.read.scopes import Context, context_of
from relquery.sql.read.source import Source

_FROM = ("from_", "joins", "laterals")


@dataclass(frozen=True, slots=True)
class Lookup:
    """Asks DuckDB, with stand-ins for calls. None means that it does not say: the part depends on
    a row of an outer query, or has a form that only DuckDB understands."""

    database: Database
    source: Source
    aggregates: Aggregates

    def context(self, node: exp.Expr) -> Context:
        """The WITH entries that a part of the statement sees."""
        context = context_of(node)
        return Context(tuple(map(_stubbed_entry, context.entries)), context.recursive)

    def sources(self, select: exp.Select, place: exp.Expr | None = None) -> Sources | None:
        """The tables of a FROM clause, read at `place` if it is not part of the statement."""
        probe = stub(from_only(select))
        assert isinstance(probe, exp.Select)
        try:
            return read_sources(self.database, probe, self.context(place or select))
        except QueryError:
            return None

    def columns(
        self, query: exp.Expr, place: exp.Expr | None = None
    ) -> list[tuple[str, str]] | None:
        """(name, type) of the columns of a query; the names are those of the text as written."""
        context = self.context(place or query)
        try:
            return columns_of_query(self.database, self.source, query, context)
        except QueryError:
            return None

    def normal(self, select: exp.Select) -> exp.Select | None:
        """A normalized copy of a SELECT, in which no name stands for an item of its list."""
        sources = self.sources(select)
        if sources is None:
            return None
        probe = _with_stubbed_from(select)
        try:
            return normalize(probe, sources, self.database, self.context(select), self.aggregates)
        except QueryError:
            return None

    def items(self, select: exp.Select) -> list[exp.Expr] | None:
        """Copies of the select list, with the columns that each star stands for."""
        sources, probe = self.sources(select), _with_stubbed_from(select)
        found: list[exp.Expr] = []
        for item in select.expressions:
            if not is_star(item):
                found.append(item.copy())
            elif sources is None:
                return None
            else:
                try:
                    found += star_columns(item, sources, self.database, probe, self.context(select))
                except QueryError:
                    return None
        return found

    def kinds(self, select: exp.Select) -> Kinds:
        """Types of expressions over the FROM clause of a SELECT."""
        return Kinds(self.database, self.context(select), select)

    def stands_alone(self, query: exp.Expr) -> bool:
        """Whether a query is independent of the rows of an outer query."""
        return self.columns(query) is not None


def _stubbed_entry(entry: exp.CTE) -> exp.CTE:
    copy = stub(entry)
    assert isinstance(copy, exp.CTE)
    return copy


def _with_stubbed_from(select: exp.Select) -> exp.Select:
    copy = select.copy()
    for clause in _FROM:
        node = copy.args.get(clause)
        if isinstance(node, list):
            copy.set(clause, [stub(part) for part in node])
        elif node is not None:
            copy.set(clause, stub(node))
    return copy
