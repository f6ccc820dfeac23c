"""Whose column each column of a correlated subquery is: its own tables' or the outer query's.

Notes stay on copies of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql.binder.call import Call, calls_in, is_star
from relquery.sql.binder.functions import clauses_of
from relquery.sql.binder.outer import outer_columns
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.pairs import columns_of_star, is_whole_star, refused
from relquery.sql.parser.tree import (
    Argument,
    Column,
    Expression,
    Node,
    Position,
    Query,
    Select,
    Star,
)

WHERE = "a subquery that depends on a row of the outer query"
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Outer:
    """A column of the outer query, or a field of one."""

    table: str
    name: str
    fields: tuple[str, ...] = ()


_INNER = Outer("", "")


def is_inner(node: Node) -> bool:
    """Whether a column was noted as one of the subquery's own tables."""
    return node.meta.get(_OWNER) is _INNER


def outer_of(node: Node) -> Outer | None:
    """What a column was noted as, if it is one of the outer query."""
    found: Outer | None = node.meta.get(_OWNER)
    return None if found is _INNER else found


@dataclass(frozen=True, slots=True)
class Owners:
    """Notes the owners in a subquery. inside, outside: its own tables and the outer query's."""

    inside: Sources
    outside: Sources
    lookup: Lookup

    def note(self, select: Select) -> None:
        """Note them in place, and replace stars by columns. Raises UnsupportedQueryError."""
        if select.find(Position) or any(star.is_columns for star in select.find_all(Star)):
            raise refused(WHERE, "the subquery names columns by a pattern or number")
        if any(map(is_star, select.items)):
            items = self.lookup.items(select)
            if items is None:
                raise refused(WHERE, "the subquery has a star. Name the columns")
            select.items = items
        for call in list(calls_in(select)):
            self._write_out(call)
        self._check_aliases(select)
        for column in list(self._columns(select)):
            column.meta[_OWNER] = self._owner(column, select)

    def _write_out(self, call: Call) -> None:
        """Write out the fields of a call that are those of an outer star, or of all tables."""
        fields = [(at, one) for at, field in enumerate(call.fields) for one in self._named(field)]
        call.arguments = [Argument(expression=one) for _, one in fields]
        for note, own in (("modules", call.modules), ("bags", call.bags)):
            call.meta[note] = frozenset(new for new, (at, _) in enumerate(fields) if at in own)

    def _named(self, field: Expression) -> list[Expression]:
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

    def _owner(self, column: Column, select: Select) -> Outer | None:
        """Raises UnsupportedQueryError for a column of neither, or one that may be of both."""
        first, has_prefix = column.names[0], len(column.names) > 1
        tables = {table.lower() for table in self.inside.columns}
        if (has_prefix and first.lower() in tables) or self.inside.has(first):
            return _INNER
        named = {item.alias.lower() for item in select.items if item.alias}
        is_alias = not has_prefix and column.name.lower() in named
        found = self._outer(column.names)
        if found is not None and not is_alias and not self.inside.has(found.table):
            return found
        if is_alias and not self.outside.has(column.name):
            return None
        name = ".".join(column.names)
        raise refused(WHERE, f"{name} may be of several tables, or of another query")

    def _outer(self, names: list[str]) -> Outer | None:
        for count in (2, 1):
            found = self.outside.resolve(Column(column_names=names[:count]))
            if found is not None:
                return Outer(*found, tuple(names[count:]))
        return None

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
