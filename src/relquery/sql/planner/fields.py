"""The fields of a call: their expressions, names, and the answers that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, field_name
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.sources import Sources, joins_in, leaves
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Select, Table
from relquery.sql.planner.guards import guard_of
from relquery.table.dependencies.dependencies import Dependency


@dataclass(frozen=True, slots=True)
class Field:
    """name: what the model sees. value: an expression over the plan's rows. is_module: whether the
    model reads each value by itself, wherever it stands. is_bag: whether it is a list whose items
    are fields of their own, in any order. source, column: of a plain column, the
    alias of its table and its name there; without a source if USING has merged it."""

    name: str
    value: Expression
    is_module: bool = False
    is_bag: bool = False
    source: str | None = None
    column: str = ""

    @classmethod
    def of(
        cls, written: Expression, value: Expression, sources: Sources, is_module: bool, is_bag: bool
    ) -> Field:
        """A field by the name that it has if no other one has it."""
        source, column, name = None, "", str(written.meta.get(FIELD_NAME, ""))
        if isinstance(written, Column):
            source, column = sources.resolve(written) or (written.table or None, written.name)
        return cls(name or column or field_name(written), value, is_module, is_bag, source, column)

    @property
    def sql(self) -> str:
        """The value as SQL."""
        return parser().sql(self.value)


def name_fields(fields: Iterable[Field], *, keep: bool = False) -> tuple[Field, ...]:
    """Give fields distinct names; one given twice under one name is sent once, as a module if the
    first is one.

    A column keeps its own name, or becomes table.column if two fields of the call would clash.
    Other fields that would clash are numbered. keep: whether each keeps its place, even if given
    twice.
    """
    distinct: dict[object, Field] = {}
    for at, field in enumerate(fields):
        same = field.value.key, field.name, field.is_bag
        distinct.setdefault(at if keep else same, field)
    counts = Counter(field.name for field in distinct.values())
    names = []
    for field in distinct.values():
        # A name that is not the column's own is an alias.
        is_column = bool(field.source) and field.column == field.name
        is_qualified = is_column and counts[field.name] > 1
        names.append(f"{field.source}.{field.name}" if is_qualified else field.name)
    pairs = zip(distinct_names(names), distinct.values(), strict=True)
    return tuple(replace(field, name=name) for name, field in pairs)


def sides_of(fields: Iterable[Expression], sources: Sources, call: str) -> tuple[int, ...]:
    """For each field, which of two tables it is of. Raises QueryError unless there are two.

    call: as written, for the message.
    """
    tables: list[list[str]] = []
    for expression in fields:
        found = (sources.resolve(column) for column in expression.find_all(Column))
        tables.append(list(dict.fromkeys(one[0] if one else "?" for one in found)))
    known = list(dict.fromkeys(one for each in tables for one in each))
    if len(known) != 2 or any(len(each) != 1 for each in tables):
        raise QueryError(
            f"{call} sets classify, which needs fields of two tables, each field of one. Its "
            f"tables: {', '.join(known) or 'none'}. Leave classify out to ask about each pair."
        )
    return tuple(known.index(each[0]) for each in tables)


@dataclass(frozen=True, slots=True)
class Need:
    """call: the call whose answer is read. reads: a condition; rows where it holds read it."""

    call: int
    reads: Expression


def needs_in(fields: Iterable[Expression], functions: FunctionCatalog) -> tuple[Need, ...]:
    """Which inner answers fields depend on, and in which rows. Their calls have already been
    replaced by their answer columns.

    LLM('...', CASE WHEN seen THEN LLM('...', title) ELSE title END)  =>  the inner one where `seen`
    """
    places: dict[int, list[Expression]] = {}
    for field in fields:
        for column in field.find_all(Column):
            if (call := ours.call_of(column.name)) is not None:
                where = guard_of(column, field, functions) or build.boolean(True)
                places.setdefault(call, []).append(where)
    return tuple(Need(call, build.any_of(reads)) for call, reads in places.items())


Keys = Callable[[], tuple[Dependency, ...]]
"""Reads keys from the database; most orders of fields need none."""


def declared_keys(
    select: Select, fields: Sequence[Field], entries: Iterable[str], database: Database
) -> Keys:
    """What primary keys and UNIQUE constraints say of the other fields of their table, by name.

    products(asin PRIMARY KEY, title, price)
    LLM('...', asin, title, review)            =>  asin -> title

    entries: names of the WITH entries that hide tables of their name.
    """
    hidden = {name.lower() for name in entries}
    merged = {name.lower() for join in joins_in(select.source) for name in join.using}

    def keys() -> Iterator[Dependency]:
        for table in leaves(select.source):
            if not isinstance(table, Table):
                continue
            if len(table.path) == 1 and table.table.lower() in hidden:
                continue
            names = {
                field.column.lower(): field.name
                for field in fields
                if (field.source or "").lower() == table.name.lower()
                or (field.source is None and field.column.lower() in merged)
            }
            catalog, schema, name = ("", "", *table.path)[-3:]
            for key in database.keys(name, schema, catalog) if len(names) > 1 else ():
                parts = tuple(names.get(column.lower(), "") for column in key)
                others = tuple(other for other in names.values() if other not in parts)
                if all(parts) and others:
                    yield Dependency(parts, others)

    return lambda: tuple(keys())
