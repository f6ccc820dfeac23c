"""Whose column each name of a subquery is: of its own tables, or of the outer query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relquery.sql.binder.call import FIELD_NAME, calls_in
from relquery.sql.binder.functions import clauses_of
from relquery.sql.binder.normalize import is_order_name
from relquery.sql.binder.sources import Context, Sources
from relquery.sql.optimizer.join_conditions import (
    columns_of,
    columns_of_star,
    is_whole_star,
    refused,
)
from relquery.sql.optimizer.reads import Lookup
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Expression, Query, Select, Star

WHERE = "a subquery that depends on a row of the outer query"
OWNER = "owner"
"""Note on a column of a subquery: the table and name of a column of the outer query, and the fields
of it that are read; nothing for a column of the subquery's own tables."""


def _write_all(select: Select) -> None:
    """Write ORDER BY ALL as the numbers of all columns, in place."""
    for key in list(select.order.keys) if select.order is not None else ():
        if isinstance(key.value, Star) and key.value.pattern is None:
            numbered = [key.copy() for _ in select.items]
            for at, one in enumerate(numbered, 1):
                one.value = build.number(at)
            key.replace(*numbered)


@dataclass(frozen=True, slots=True)
class Owners:
    """Notes whose each column of a subquery is. inside, outside: its own tables and the outer
    query's."""

    inside: Sources
    outside: Sources
    lookup: Lookup

    def note(self, select: Select, opened: Iterable[Column] = ()) -> None:
        """Note them in place, and replace stars by columns. Raises UnsupportedQueryError.

        opened: columns of the outer query that a table of the subquery reads.
        """
        for column in opened:
            column.meta[OWNER] = self._outer_owner(column)
        items = self.lookup.items(select, self.inside)
        if items is None:
            raise refused(WHERE, "the subquery has a star. Name the columns")
        if any(isinstance(item, Star) for item in select.items):
            select.items = items
        _write_all(select)
        if select.find(tree.Position) or any(star.is_columns for star in select.find_all(Star)):
            raise refused(WHERE, "the subquery names columns by a pattern or number")
        for call in list(calls_in(select)):
            fields = [(at, one) for at, field in enumerate(call.fields) for one in self._of(field)]
            call.arguments = [tree.Argument(expression=one) for _, one in fields]
            for note, own in (("modules", call.modules), ("bags", call.bags)):
                call.meta[note] = frozenset(new for new, (at, _) in enumerate(fields) if at in own)
        named = {item.alias.lower() for item in select.items if item.alias}
        for column in list(self._columns(select)):
            self._unmerge(column)
        for column in list(self._columns(select)):
            if not (is_order_name(column, named) and column.ancestor(Query) is select):
                column.meta[OWNER] = self._owner(column)

    def _of(self, field: Expression) -> list[Expression]:
        """A field, or what stands for the star of the outer query, or of all tables."""
        if not isinstance(field, Star):
            return [field]
        tables = self.inside.columns
        if not field.table:
            whole = sum(map(len, tables.values())) == len(self.inside.names)
            if not whole or not is_whole_star(field):
                raise refused(WHERE, "a field of it is *. Name the columns")
            return [Star(relation_name=table) for table in tables]
        is_own = any(field.table.lower() == table.lower() for table in tables)
        return [field] if is_own else [*columns_of_star(field, self.outside, WHERE)]

    def _columns(self, select: Select) -> Iterator[Column]:
        """The columns of a subquery that are not of a query inside it."""
        context = Context.of(select)
        for clause in clauses_of(select):
            yield from columns_of(clause, context, WHERE, self.lookup)

    def _unmerge(self, column: Column) -> None:
        """Put what a merged column of the outer query means in its place."""
        name = column.name
        if len(column.names) > 1 or self.inside.has(name) or self.outside.resolve(column):
            return
        if (meant := self.outside.merged(name)) is not None:
            meant.meta[FIELD_NAME] = column.meta.get(FIELD_NAME, name)
            column.replace(meant.named(column.alias))

    def _owner(self, column: Column) -> tuple[str, ...]:
        """What is noted on a column. Raises UnsupportedQueryError for a column of neither query, or
        one that may be of both."""
        return () if self.inside.gives(column) else self._outer_owner(column)

    def _outer_owner(self, column: Column) -> tuple[str, ...]:
        for count in (2, 1):
            found = self.outside.resolve(Column(column_names=column.names[:count]))
            if found is not None and not self.inside.has(found[0]):
                return *found, *column.names[count:]
            if found is not None:
                break
        name = ".".join(column.names)
        raise refused(WHERE, f"{name} may be of several tables, or of another query")
