"""An order in which to send a table, and what it achieves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.table.cost.billing import Bill
from relquery.table.cost.hits import HitReport
from relquery.table.dependencies.dependencies import Dependency
from relquery.table.measure import Depth, Fields


@dataclass(frozen=True, slots=True)
class Report:
    """What a solver achieved.

    weight: what was maximised. seconds: solving time, without encoding the table. phc, phr, depths:
    see relquery.table.measure; counted in characters. dependencies: given and discovered ones.
    tokens: hits on token ids, if a tokenizer, a price or a cache size was given. bill: what the
    provider charges, if a price was given.
    """

    method: Order
    weight: str
    seconds: float
    phc: int
    phr: float
    depths: tuple[Depth, ...]
    dependencies: tuple[Dependency, ...] = ()
    tokens: HitReport | None = None
    bill: Bill | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """An order in which to send a table.

    rows: (n,), row ids in the order to send.
    fields: (n, m), at position i the column ids of row `rows[i]` in the order to send.
    """

    rows: Int64s
    fields: Fields
    report: Report

    def part(self, places: Int64s) -> Schedule:
        """Some of the rows, by their place in the order."""
        return replace(self, rows=self.rows[places], fields=self.fields[places])
