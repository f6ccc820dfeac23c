"""The prompts of a schedule as a sequence, each built when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from relquery.arrays import Int64s
from relquery.lazy import LazySequence
from relquery.reordering.cost.billing import Bill, Marks
from relquery.reordering.cost.measure import Fields
from relquery.reordering.prompts.source import Source
from relquery.reordering.prompts.template import Template


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


class Prompts(LazySequence[RowPrompt]):
    """The prompts of some rows in the order to send.

    bill: what the provider charges if they are sent one after the other; None without a price, for
        a price without breakpoints, and for a part.
    """

    def __init__(
        self,
        source: Source,
        template: Template,
        rows: Int64s,
        fields: Fields,
        breakpoints: Marks | None = None,
        bill: Bill | None = None,
    ) -> None:
        """breakpoints: in parts, see RowPrompt."""
        super().__init__(np.arange(len(rows)), self._prompts)
        self._source, self._template = source, template
        self._rows, self._fields = rows, fields
        self._breakpoints, self.bill = breakpoints, bill

    @property
    def rows(self) -> Int64s:
        """(n,), numbers in the table, in the order to send."""
        return self._rows[self._places]

    def part(self, some: Int64s | slice) -> Prompts:
        """Some of them, by their place in the order, with their breakpoints and without a bill."""
        found = super().part(some)
        found.bill = None
        return found

    def custom_ids(self) -> Iterator[str]:
        """The id of each request, in this order: its row's number in the table, and a digest of
        cells and column names.

        Results come in any order, perhaps in another process and days later. The number says where
        an answer belongs, and the digest whether that row is still the one that was asked about.
        Providers accept up to 64 letters, digits, hyphens and underscores.
        """
        digests = self._source.digests(self.rows)
        for row, digest in zip(self.rows.tolist(), digests, strict=True):
            yield f"row-{row}-{digest}"

    def __repr__(self) -> str:
        return f"<Prompts: {len(self):,} prompts>"

    def _prompts(self, places: Int64s) -> Iterator[RowPrompt]:
        template, names, marks = self._template, self._source.items.names, self._breakpoints
        rows, fields = self._rows[places], self._fields[places]
        sent = self._source.sent(rows, fields)
        lines = {item: template.line(*cell) for item, cell in self._source.cells(sent).items()}
        system, head, tail = template.system, template.head, template.tail
        orders = zip(places.tolist(), rows.tolist(), fields.tolist(), sent.tolist(), strict=True)
        for place, row, columns, items in orders:
            yield RowPrompt(
                row,
                system,
                tuple([names[column] for column in columns]),
                (head, *[lines[item] for item in items], tail),
                () if marks is None else marks[place],
            )


_ID = re.compile(r"row-(0|[1-9][0-9]*)-([0-9a-f]{8})")


def read_id(text: object) -> tuple[int, str] | None:
    """(row, digest); None for what is not one of `custom_ids`."""
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), found[2])
