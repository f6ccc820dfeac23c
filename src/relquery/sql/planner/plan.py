"""The plan of a statement: its SELECTs with calls, inner ones first, and what remains.

base     FROM and all predicates without calls, as a table with a row number
filters  the predicates with calls, each on the rows that the others kept
cut      which of the remaining rows the SELECT returns, if that needs no other calls: calls of
         ORDER BY, QUALIFY and DISTINCT ON
outputs  the calls of SELECT, GROUP BY, HAVING, QUALIFY and ORDER BY, on the remaining rows
final    the SELECT itself over base rows and answers

Also the fields of a call: their names, and the answers and keys that they depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relquery.config import QueryConfig
from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.reordering.dependencies import Dependency
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Task, field_name
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.sources import Context, Sources, joins_in, leaves
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Select, Table
from relquery.sql.planner.checks import Check
from relquery.sql.planner.guards import Condition, guard_of

Places = Mapping[int, Sequence[Sequence[Condition]]]
"""For each call, the conditions of every place that reads it: all of them hold there. Their calls
have been replaced by answer columns."""


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


@dataclass(frozen=True, slots=True)
class Need:
    """call: the call whose answer is read. reads: a condition; rows where it holds read it."""

    call: int
    reads: Expression


Keys = Callable[[], tuple[Dependency, ...]]
"""Reads keys from the database; most orders of fields need none."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A distinct call. needs: the answers that its fields read. keys: see `declared_keys`."""

    index: int
    text: str
    task: Task
    fields: tuple[Field, ...]
    needs: tuple[Need, ...]
    keys: Keys = field(default=tuple, compare=False)

    @property
    def prompt(self) -> str:
        """The prompt to show."""
        return self.task.prompt

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn."""
        return self.task.sampling

    def in_form(self, default: QueryConfig) -> PlannedCall:
        """The call as it is sent; see Task."""
        return replace(self, task=self.task.in_form(default))

    @property
    def is_pinned(self) -> bool:
        """Whether the prompt's text fixes the place of all fields."""
        places = {part for part in self.task.query if isinstance(part, int)}
        return bool(self.fields) and len(places) == len(self.fields)

    @property
    def modules(self) -> tuple[int, ...]:
        """The fields that are modules, by their place."""
        return tuple(index for index, field in enumerate(self.fields) if field.is_module)


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls of a SELECT that are asked together. calls: inner ones first. checks: of their answers,
    at the places that read them in this part.
    """

    calls: tuple[int, ...]
    places: Places
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """A predicate with calls. part: all calls that it needs."""

    predicate: Expression
    part: CallGroup


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows that a SELECT returns. select: their numbers, from all rows that passed the filters.

    part: the calls that decide it. stops: whether the filters can stop at a limit, or in
    each group of DISTINCT ON at its first row, because the rows can be ordered beforehand.
    """

    select: Select
    part: CallGroup
    stops: bool


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """The plan of one SELECT. All expressions except `base` read the table `ours.ROWS`.

    base: the columns that everything else reads. cut: None if the final SELECT decides what it
    returns. final: the SELECT itself, without what `cut` does.
    context: the WITH entries that it sees. columns: (name, type) of its result. table: the name of
    the scratch table for it; "" for the outermost SELECT. stops: whether the statement may need
    only some of its rows.
    """

    base: Select
    calls: tuple[PlannedCall, ...]
    filters: tuple[Filter, ...]
    cut: Cut | None
    outputs: CallGroup
    aggregated: bool
    final: Select
    context: Context
    columns: tuple[tuple[str, str], ...]
    table: str = ""
    stops: bool = False

    @property
    def kind(self) -> str:
        """What the stages of its outputs are called."""
        return "aggregate" if self.aggregated else "projection"

    @property
    def inner(self) -> dict[int, frozenset[int]]:
        """For each call, the calls whose answers are its fields."""
        return {call.index: frozenset(need.call for need in call.needs) for call in self.calls}

    @property
    def parts(self) -> tuple[CallGroup, ...]:
        """The calls of all stages, in the order in which they are asked."""
        cut = () if self.cut is None else (self.cut.part,)
        return (*(filter_.part for filter_ in self.filters), *cut, self.outputs)


def name_fields(fields: Iterable[Field], *, keep: bool = False) -> tuple[Field, ...]:
    """Give fields distinct names; one given twice under one name is sent once, as a module if the
    first is one.

    A column keeps its own name, or becomes table.column if two fields of the call would clash.
    Other fields that would clash are numbered. keep: whether each keeps its place, even if given
    twice.
    """
    distinct: dict[object, Field] = {}
    for index, given in enumerate(fields):
        distinct.setdefault(index if keep else (given.value.key, given.name, given.is_bag), given)
    counts = Counter(field.name for field in distinct.values())
    names = []
    for given in distinct.values():
        # A name that is not the column's own is an alias.
        is_qualified = bool(given.source) and given.column == given.name and counts[given.name] > 1
        names.append(f"{given.source}.{given.name}" if is_qualified else given.name)
    pairs = zip(distinct_names(names), distinct.values(), strict=True)
    return tuple(replace(field, name=name) for name, field in pairs)


def sides_of(fields: Iterable[Expression], sources: Sources, call: str) -> tuple[int, ...]:
    """For each field, which of two tables it is of. Raises QueryError unless there are two.

    call: as written, for the message.
    """
    tables: list[list[str]] = []
    for expression in fields:
        columns = (sources.resolve(column) for column in expression.find_all(Column))
        tables.append(list(dict.fromkeys(pair[0] if pair else "?" for pair in columns)))
    known = list(dict.fromkeys(table for each in tables for table in each))
    if len(known) != 2 or any(len(each) != 1 for each in tables):
        raise QueryError(
            f"{call} sets classify, which needs fields of two tables, each field of one. Its "
            f"tables: {', '.join(known) or 'none'}. Leave classify out to ask about each pair."
        )
    return tuple(known.index(each[0]) for each in tables)


def needs_in(fields: Iterable[Expression], functions: FunctionCatalog) -> tuple[Need, ...]:
    """Which inner answers fields depend on, and in which rows. Their calls have already been
    replaced by their answer columns.

    LLM('...', CASE WHEN seen THEN LLM('...', title) ELSE title END)  =>  the inner one where `seen`
    """
    places: dict[int, list[Expression]] = {}
    for value in fields:
        for column in value.find_all(Column):
            if (call := ours.call_of(column.name)) is not None:
                where = guard_of(column, value, functions) or build.boolean(True)
                places.setdefault(call, []).append(where)
    return tuple(Need(call, build.any_of(reads)) for call, reads in places.items())


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
            constraints = database.constraints(table.path) if len(names) > 1 else ()
            for key in (constraint for constraint in constraints if constraint.is_key):
                parts = tuple(names.get(column.lower(), "") for column in key.columns)
                others = tuple(other for other in names.values() if other not in parts)
                if all(parts) and others:
                    yield Dependency(parts, others)

    return lambda: tuple(keys())
