"""Whose column each column of a correlated subquery is: its own tables' or the outer query's.

Notes stay on copies of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.read.binding import outer_columns
from relquery.sql.read.from_clause import Sources, is_star
from relquery.sql.read.scopes import calls_in
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.pairs.repeatable import columns_of_star, refused

WHERE = "a subquery that depends on a row of the outer query"
_OWNER = "owner"
_INNER = ("", "")
_BY_ALIAS = ("having", "order")


def is_inner(column: exp.Expr) -> bool:
    """Whether a column was noted as one of the subquery's own tables."""
    return bool(column.meta_get(_OWNER) == _INNER)


def outer_name(column: exp.Expr) -> tuple[str, str] | None:
    """(table, name) of a column that was noted as one of the outer query."""
    owner: tuple[str, str] | None = column.meta_get(_OWNER)
    return None if owner == _INNER else owner


@dataclass(frozen=True, slots=True)
class Owners:
    """Notes the owners in a subquery. inside, outside: its own tables and the outer query's."""

    inside: Sources
    outside: Sources
    lookup: Lookup

    def note(self, select: exp.Select) -> None:
        """Note them in place, and replace stars by columns. Raises UnsupportedQueryError."""
        if select.find(exp.Columns, exp.PositionalColumn):
            raise refused(WHERE, "the subquery names columns by a pattern or number")
        if any(map(is_star, select.expressions)):
            items = self.lookup.items(select)
            if items is None:
                raise refused(WHERE, "the subquery has a star. Name the columns")
            select.set("expressions", items)
        for call in list(calls_in(select)):
            call.set("expressions", [one for part in call.expressions for one in self._named(part)])
        self._check_aliases(select)
        for column in list(self._columns(select)):
            column.meta[_OWNER] = self._owner(column, select)

    def _named(self, argument: exp.Expr) -> list[exp.Expr]:
        """A field of a call; those of an outer star, or of all tables, one by one."""
        if isinstance(argument, exp.Star):
            return [exp.Column(this=exp.Star(), table=exp.to_identifier(table, quoted=True))
                    for table in self.inside.columns]  # fmt: skip
        if is_star(argument) and isinstance(argument, exp.Column):
            inside = {table.lower() for table in self.inside.columns}
            if argument.table.lower() not in inside:
                return list(columns_of_star(argument, self.outside, WHERE))
        return [argument]

    def _columns(self, select: exp.Select) -> Iterator[exp.Column]:
        """The columns of a subquery that are not of a query inside it."""
        clauses = [node for key, node in select.args.items() if key not in ("from_", "joins")]
        for clause in clauses:
            for node in clause if isinstance(clause, list) else [clause]:
                if not isinstance(node, exp.Expr):
                    continue
                for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
                    if isinstance(part, exp.Query):
                        context = self.lookup.context(select)
                        columns = outer_columns(part, self.lookup.database, context)
                        if columns is None:
                            raise refused(WHERE, "another subquery inside it is unclear")
                        yield from columns
                    elif isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                        yield part

    def _owner(self, column: exp.Column, select: exp.Select) -> tuple[str, str] | None:
        """Raises UnsupportedQueryError for a column of neither, or one that may be of both."""
        first = column.args.get("db") or column.args.get("table") or column.this
        tables = {table.lower() for table in self.inside.columns}
        has_prefix = column.args.get("table") is not None
        if (has_prefix and first.name.lower() in tables) or self.inside.has(first.name):
            return _INNER
        named = {item.alias.lower() for item in select.expressions if item.alias}
        is_alias = not has_prefix and column.name.lower() in named
        found = self._outer_name(column)
        if found is not None and not is_alias and not self.inside.has(found[0]):
            return found
        if is_alias and not self.outside.has(column.name):
            return None
        raise refused(WHERE, f"{column.sql()} may be of several tables, or of another query")

    def _outer_name(self, column: exp.Column) -> tuple[str, str] | None:
        parts = [column.args.get(key) for key in ("db", "table", "this")]
        names = [part for part in parts if part is not None]
        if len(names) > 1:
            named = exp.Column(this=names[1].copy(), table=names[0].copy())
            if (found := self.outside.resolve(named)) is not None:
                return found
        return self.outside.resolve(exp.Column(this=names[0].copy()))

    def _check_aliases(self, select: exp.Select) -> None:
        """Refuse a name that HAVING or ORDER BY reads from the list though a table has it too."""
        named = {
            item.alias.lower()
            for item in select.expressions
            if item.alias and self.inside.has(item.alias) and item.this.name != item.alias
        }
        for clause in _BY_ALIAS:
            node = select.args.get(clause)
            for column in node.find_all(exp.Column) if node is not None else ():
                if not column.table and column.name.lower() in named:
                    raise refused(WHERE, f"{column.name} is a column and a name of the list")
