"""Types of the expressions of one SELECT, as DuckDB names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import describe, from_only
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Node, Query, Select


@dataclass(slots=True)
class Kinds:
    """Asks DuckDB, with stand-ins for calls. None means that DuckDB does not say."""

    database: Database
    context: Context
    select: Select
    _known: dict[str, str | None] = field(default_factory=dict)

    def of(self, node: Expression) -> str | None:
        """The type of an expression over the FROM clause."""
        key = node.key
        if key not in self._known:
            probe = self.context.around(from_only(self.select, [node]))
            self._known[key] = self._type(probe)
        return self._known[key]

    def know(self, nodes: Iterable[Expression]) -> None:
        """Ask for several types at once."""
        new = {node.key: node for node in nodes if node.key not in self._known}
        if len(new) < 2:
            return
        probe = self.context.around(from_only(self.select, list(new.values())))
        try:
            found = describe(probe, self.database)
        except QueryError:
            return
        if len(found) == len(new):
            self._known.update(zip(new, (kind for _, kind in found), strict=True))

    def named(self, kind: Node) -> str | None:
        """DuckDB's name for a type as written in the query."""
        key = kind.key
        if key not in self._known:
            self._known[key] = self._type(build.select([build.cast(build.null(), kind.copy())]))
        return self._known[key]

    def binds(self, query: Query) -> bool:
        """Whether DuckDB accepts another form of the SELECT."""
        alone = query.copy()
        alone.entries = ()
        return self._type(self.context.around(alone)) is not None

    def _type(self, query: Query) -> str | None:
        try:
            return describe(query, self.database)[0][1]
        except QueryError:
            return None

    def is_value(self, value: Expression) -> bool:
        """Whether an expression that reads no table is not NULL."""
        found = self.database.fetch(f"SELECT {parser().sql(value)}")
        return bool(found.column(0).null_count == 0)
