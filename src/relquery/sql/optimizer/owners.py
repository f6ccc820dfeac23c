"""Whose column each name of a subquery is: of its own tables, or of the outer query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql.binder.call import calls_in
from relquery.sql.binder.functions import clauses_of
from relquery.sql.binder.sources import Context, Sources, outer_columns
from relquery.sql.optimizer.join_conditions import columns_of_star, is_whole_star, refused
from relquery.sql.optimizer.reads import Lookup
from relquery.sql.parser import tree
from relquery.sql.parser.tree import Column, Expression, Query, Select, Star

WHERE = "a subquery that depends on a row of the outer query"
OWNER = "owner"
"""Note on a column of a subquery: the table and name of a column of the outer query, and the fields
of it that are read; nothing for a column of the subquery's own tables."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Notes whose each column of a subquery is. inside, outside: its own tables and the outer
    query's."""

    inside: Sources
    outside: Sources
    lookup: Lookup

    def note(self, select: Select) -> None:
        """Note them in place, and replace stars by columns. Raises UnsupportedQueryError."""
        if select.find(tree.Position) or any(star.is_columns for star in select.find_all(Star)):
            raise refused(WHERE, "the subquery names columns by a pattern or number")
        items = self.lookup.items(select)
        if items is None:
            raise refused(WHERE, "the subquery has a star. Name the columns")
        if any(isinstance(item, Star) for item in select.items):
            select.items = items
        for call in list(calls_in(select)):
            fields = [(at, one) for at, field in enumerate(call.fields) for one in self._of(field)]
            call.arguments = [tree.Argument(expression=one) for _, one in fields]
            for note, own in (("modules", call.modules), ("bags", call.bags)):
                call.meta[note] = frozenset(new for new, (at, _) in enumerate(fields) if at in own)
        named = {item.alias.lower() for item in select.items if item.alias}
        self._check_aliases(select)
        for column in list(self._columns(select)):
            owner = self._owner(column, named)
            if owner is not None:
                column.meta[OWNER] = owner

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
            for part in clause.walk(prune=lambda part: isinstance(part, Query)):
                if isinstance(part, Column):
                    yield part
                elif isinstance(part, Query):
                    columns = outer_columns(part, self.lookup.database, context)
                    if columns is None:
                        raise refused(WHERE, "another subquery inside it is unclear")
                    yield from columns

    def _owner(self, column: Column, named: set[str]) -> tuple[str, ...] | None:
        """What is noted on a column; None for a name of the select list. Raises
        UnsupportedQueryError for a column of neither query, or one that may be of both."""
        first, has_prefix = column.names[0], len(column.names) > 1
        is_own_table = has_prefix and first.lower() in map(str.lower, self.inside.columns)
        if is_own_table or self.inside.has(first):
            return ()
        is_alias = not has_prefix and column.name.lower() in named
        if is_alias and not self.outside.has(column.name):
            return None
        for count in () if is_alias else (2, 1):
            found = self.outside.resolve(Column(column_names=column.names[:count]))
            if found is not None and not self.inside.has(found[0]):
                return *found, *column.names[count:]
            if found is not None:
                break
        name = ".".join(column.names)
        raise refused(WHERE, f"{name} may be of several tables, or of another query")

    def _check_aliases(self, select: Select) -> None:
        """Refuse a name that HAVING or ORDER BY reads from the list though a table has it too."""
        named = {
            item.alias.lower()
            for item in select.items
            if item.alias and self.inside.has(item.alias)
            and not (isinstance(item, Column) and item.name == item.alias)
        }  # fmt: skip
        for clause in (select.having, select.order):
            for column in clause.find_all(Column) if clause is not None else ():
                if len(column.names) == 1 and column.name.lower() in named:
                    raise refused(WHERE, f"{column.name} is a column and a name of the list")
