"""Types of the expressions of one SELECT, as DuckDB names them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.answers.readings import reading
from relquery.sql.host.database import Database
from relquery.sql.read.check import stubbed
from relquery.sql.read.from_clause import from_only
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql


@dataclass(slots=True)
class Kinds:
    """Asks DuckDB, with stand-ins for calls. None means that DuckDB does not say."""

    database: Database
    context: Context
    select: exp.Select
    _known: dict[str, str | None] = field(default_factory=dict)

    def of(self, node: exp.Expr) -> str | None:
        """The type of an expression over the FROM clause."""
        probe = from_only(self.select)
        probe.set("expressions", [node.copy()])
        return self._described(self.context.sql(stubbed(probe)))

    def named(self, kind: exp.DataType) -> str | None:
        """DuckDB's name for a type as written in the query."""
        return self._described(f"SELECT {to_sql(exp.cast(exp.null(), kind))}")

    def is_value(self, text: str, kind: str) -> bool:
        """Whether an answer is a valid value of a type."""
        value = reading(exp.Literal.string(text), kind)
        return bool(self.database.fetch(f"SELECT {to_sql(value)}").column(0).null_count == 0)

    def binds(self, select: exp.Select) -> bool:
        """Whether DuckDB accepts another form of the SELECT."""
        alone = select.copy()
        alone.set("with_", None)
        return self._described(self.context.sql(stubbed(alone))) is not None

    def _described(self, query: str) -> str | None:
        if query not in self._known:
            try:
                self._known[query] = self.database.describe(query)[0][1]
            except QueryError:
                self._known[query] = None
        return self._known[query]
