"""The prompts of a schedule as a sequence, each built when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import overload

from relquery.arrays import Int64s
from relquery.table.cost.billing import Bill, Marks
from relquery.table.measure import Fields
from relquery.table.prompts.ids import custom_id
from relquery.table.prompts.source import AT_ONCE, Source
from relquery.table.prompts.template import Template


@dataclass(frozen=True, slots=True)
class RowPrompt:
    """One row's prompt.

    row: its number in the table, from 0. columns: the names of its fields, in the order sent.
    parts: the text before the fields, each field with its line break, the text after the fields.
        Joined they are `text`.
    breakpoints: after how many parts a prefix to be cached ends, ascending. For each `b` of them,
        the cache keeps the system text and `parts[:b]`.
    """

    row: int
    system: str
    columns: tuple[str, ...]
    parts: tuple[str, ...]
    breakpoints: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The prompt without the system text."""
        return "".join(self.parts)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where each field begins and ends in `text`, its line break included."""
        ends = [*accumulate(map(len, self.parts))][:-1]
        return tuple(pairwise(ends))


class Prompts(Sequence[RowPrompt]):
    """The prompts of some rows in the order to send.

    Read one after the other, the texts of about a thousand rows are in memory at a time.

    bill: what the provider charges if they are sent one after the other; None without a price, and
        for a price without breakpoints.
    """

    def __init__(
        self,
        source: Source,
        template: Template,
        rows: Int64s,
        fields: Fields,
        breakpoints: Marks | None,
        bill: Bill | None,
    ) -> None:
        """breakpoints: in parts, see RowPrompt."""
        self._source, self._template = source, template
        self._rows, self._fields = rows, fields
        self._breakpoints, self.bill = breakpoints, bill

    @property
    def rows(self) -> Int64s:
        """(n,), numbers in the table, in the order to send."""
        return self._rows

    def part(self, places: Int64s) -> Prompts:
        """Some of them, by their place in the order, with their breakpoints and without a bill."""
        marks = self._breakpoints
        chosen = None if marks is None else [marks[place] for place in places.tolist()]
        rows, fields = self._rows[places], self._fields[places]
        return Prompts(self._source, self._template, rows, fields, chosen, None)

    def custom_ids(self) -> Iterator[str]:
        """The id of each request, in this order; see relquery.table.prompts.ids."""
        digests = self._source.digests(self._rows)
        for row, digest in zip(self._rows.tolist(), digests, strict=True):
            yield custom_id(row, digest)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<Prompts: {len(self):,} prompts>"

    @overload
    def __getitem__(self, index: int) -> RowPrompt: ...
    @overload
    def __getitem__(self, index: slice) -> Prompts: ...
    def __getitem__(self, index: int | slice) -> RowPrompt | Prompts:
        if isinstance(index, slice):
            marks = None if self._breakpoints is None else self._breakpoints[index]
            rows, fields = self._rows[index], self._fields[index]
            return Prompts(self._source, self._template, rows, fields, marks, None)
        at = range(len(self))[index]
        (found,) = self[at : at + 1]
        return found

    def __iter__(self) -> Iterator[RowPrompt]:
        for start in range(0, len(self), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            marks = None if self._breakpoints is None else self._breakpoints[part]
            yield from self._some(self._rows[part], self._fields[part], marks)

    def _some(self, rows: Int64s, fields: Fields, marks: Marks | None) -> Iterator[RowPrompt]:
        template, names = self._template, self._source.items.names
        sent = self._source.sent(rows, fields)
        cells = self._source.cells(sent)
        lines = {item: template.line(*cell) for item, cell in cells.items()}
        system, head, tail = template.system, template.head, template.tail
        orders = zip(rows.tolist(), fields.tolist(), sent.tolist(), strict=True)
        for place, (row, columns, items) in enumerate(orders):
            yield RowPrompt(
                row,
                system,
                tuple([names[column] for column in columns]),
                (head, *[lines[item] for item in items], tail),
                () if marks is None else marks[place],
            )
