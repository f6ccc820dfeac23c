"""The plan of a statement: its SELECTs with calls, inner ones first, and what remains.

base     FROM and all predicates without calls, as a table with a row number
filters  the predicates with calls, each on the rows that the others kept
cut      which of the remaining rows the SELECT returns, if that needs no other calls: calls of
         ORDER BY, QUALIFY and DISTINCT ON
outputs  the calls of SELECT, GROUP BY, HAVING, QUALIFY and ORDER BY, on the remaining rows
final    the SELECT itself over base rows and answers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from relquery.config import QueryConfig
from relquery.prompt import Sampling
from relquery.sql.binder.call import Task
from relquery.sql.binder.sources import Context
from relquery.sql.parser.tree import Expression, Select
from relquery.sql.planner.checks import Check
from relquery.sql.planner.fields import Field, Keys, Need
from relquery.sql.planner.guards import Condition

Places = Mapping[int, Sequence[Sequence[Condition]]]
"""For each call, the conditions of every place that reads it: all of them hold there. Their calls
have been replaced by answer columns."""


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
        return tuple(at for at, field in enumerate(self.fields) if field.is_module)


@dataclass(frozen=True, slots=True)
class Part:
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
    part: Part


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows a SELECT returns. select: their numbers, from all rows that passed the filters.

    part: the calls that decide it. stops: whether the filters can stop at a limit, or in
    each group of DISTINCT ON at its first row, because the rows can be ordered beforehand.
    """

    select: Select
    part: Part
    stops: bool


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """How one SELECT is run. All expressions except `base` read the table `ours.ROWS`.

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
    outputs: Part
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
    def parts(self) -> tuple[Part, ...]:
        """The calls of all stages, in the order in which they are asked."""
        cut = () if self.cut is None else (self.cut.part,)
        return (*(one.part for one in self.filters), *cut, self.outputs)
