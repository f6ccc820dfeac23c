"""The prompts of a call (paper 000, appendix C): system text, query, fields as JSON or text.

A field whose place in the query's text is fixed stands there as plain text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.lazy import LazySequence
from relquery.prompt import Nest, Prompt, Reuse, Role, Span
from relquery.reordering.cost.measure import Fields
from relquery.sql.inputs.cells import JSON, JsonWriter, TextWriter

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
SYSTEM_OF_TEXT = (
    "You are a data analyst. Answer the user query. Respond with only the answer, no extra "
    "formatting."
)
_MOST_PARTS = 1 << 14  # that a template keeps: cells of many rows, not those of a million texts


class CallTemplate:
    """The prompts of one call. Parts that many rows have are made once for all of them.

    query: its text; a number stands for the text of that field. pieces: per field, the text of each
    distinct cell, which begins with the name of its field. modules: fields whose pieces are
    independent spans (paper 001): computed once, whatever is around them. bags: the columns of each
    bag (see Inputs), in which a piece may be empty: that is no item. as_written: the columns in the
    order of the query's fields.
    """

    def __init__(
        self,
        query: Sequence[str | int],
        pieces: Sequence[Sequence[str]],
        modules: Collection[int] = (),
        bags: Sequence[tuple[int, ...]] = (),
        writer: JsonWriter = JSON,
    ) -> None:
        self._query, self._pieces, self._writer = query, pieces, writer
        self.modules, self.bags = modules, bags
        of_bag = {bag[0]: bag for bag in bags}
        fields = len(pieces) - sum(len(bag) - 1 for bag in bags)
        self.as_written = [
            place for index in range(fields) for place in of_bag.get(index, (index,))
        ]
        self.pinned = pinned_in(query)
        self._has_data = len(pieces) > len(self.pinned)
        self._heads: dict[tuple[int, ...], Prompt] = {}
        self._end = () if isinstance(writer, TextWriter) else lower(Text("\n}"))
        self._parts: dict[tuple[int, int, bool], Prompt] = {}
        """What is sent for a cell: by field and piece, and whether no other field follows."""

    def prompts(self, codes: Int32s, rows: Int64s, fields: Fields | None) -> LazySequence[Prompt]:
        """The prompts of some inputs in the order to send.

        codes: (inputs, fields), numbers of their pieces. rows: (n,), the inputs to send. fields:
        (n, fields), the order of fields in each prompt; None for the query's.
        """

        def build(places: Int64s) -> Iterator[Prompt]:
            cells = codes[rows[places]].tolist()
            orders = [self.as_written] * len(cells)
            if fields is not None:
                orders = np.asarray(fields[places]).tolist()
            return map(self.prompt, cells, orders)

        return LazySequence(np.arange(len(rows)), build)

    def prompt(self, cells: Sequence[int], order: Sequence[int]) -> Prompt:
        """The prompt of a row. cells: piece number per field; order: in which fields are sent.

        Fields in the query's text may be left out of the order.
        """
        begin = self._head(tuple(cells[field] for field in self.pinned))
        if not self._has_data:
            return begin
        if self.pinned:
            order = [field for field in order if field not in self.pinned]
        if self.bags:
            order = [field for field in order if self._pieces[field][cells[field]]]
        spans, end = list[Span](), len(order) - 1
        for place, field in enumerate(order):
            part = field, cells[field], place == end
            spans += self._parts.get(part) or self._part(*part)
        return (*begin, *spans, *self._end)

    def _part(self, field: int, cell: int, is_last: bool) -> Prompt:
        text = self._pieces[field][cell]
        after = "" if is_last else self._writer.separator
        # As `lower` makes it of a text in a Bag, which takes ten times as long.
        part: Prompt = (Span(text + after),)
        if field in self.modules:
            module = Span(Nest((Span(text),)), Role.USER, Reuse.INDEPENDENT, keep=1)
            part = (module, Span(after)) if after else (module,)
        if len(self._parts) == _MOST_PARTS:
            self._parts.clear()
        self._parts[field, cell, is_last] = part
        return part

    def _head(self, cells: tuple[int, ...]) -> Prompt:
        """The text before the data. cells: piece numbers of the fields in it."""
        if cells not in self._heads:
            texts = {
                field: self._pieces[field][cell]
                for field, cell in zip(self.pinned, cells, strict=True)
            }
            query = "".join(texts[part] if isinstance(part, int) else part for part in self._query)
            if len(self._heads) == _MOST_PARTS:
                self._heads.clear()
            self._heads[cells] = self._written(query)
        return self._heads[cells]

    def _written(self, query: str) -> Prompt:
        if isinstance(self._writer, TextWriter):
            return lower(Text(f"{query}\n\n" if self._has_data else query))
        data = "\n\nGiven the following data:\n{\n" if self._has_data else ""
        has_json = self._has_data or not self.pinned
        system = Text(SYSTEM if has_json else SYSTEM_OF_TEXT, Role.SYSTEM)
        return lower(Seq((system, Text(f"Answer the below query:\n{query}{data}"))))


def pinned_in(query: Sequence[str | int]) -> tuple[int, ...]:
    """The fields whose place is fixed in a query's text, in the order of the text."""
    return tuple(dict.fromkeys(part for part in query if isinstance(part, int)))
