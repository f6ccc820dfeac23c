"""The prompts of a call (paper 000, appendix C): system text, query, fields as JSON, lines or text.

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
from relquery.sql.inputs.cells import JSON, JsonWriter, LinesWriter

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
SYSTEM_OF_TEXT = (
    "You are a data analyst. Answer the user query. Respond with only the answer, no extra "
    "formatting."
)
_MOST_PARTS = 1 << 14  # that a template keeps: cells of many rows, not those of a million texts


class Template:
    """The prompts of one call. Parts that many rows have are made once for all of them.

    query: its text; a number stands for the text of that field. pieces: per field, the text of each
    distinct cell. modules: fields whose pieces are independent spans (paper 001): computed once,
    whatever is around them. bags: the columns of each bag (see Inputs), in which a piece may be
    empty: that is no item. In JSON, and several in the form text, all pieces begin with the name of
    their field; in lines those of modules and bags, since no place tells it.
    main: the columns whose names are above the data, in order; None for as many as possible.
    as_written: the columns in the order of the query's fields.
    """

    def __init__(
        self,
        query: Sequence[str | int],
        pieces: Sequence[Sequence[str]],
        modules: Collection[int] = (),
        bags: Sequence[tuple[int, ...]] = (),
        writer: JsonWriter = JSON,
        main: Sequence[int] | None = None,
    ) -> None:
        self._given = query, pieces, modules, bags, writer
        self._query, self._pieces, self._writer = query, pieces, writer
        self.modules, self.bags = modules, bags
        of_bag = {bag[0]: bag for bag in bags}
        fields = len(pieces) - sum(len(bag) - 1 for bag in bags)
        self.as_written = [one for at in range(fields) for one in of_bag.get(at, (at,))]
        self.pinned = pinned_in(query)
        self._has_data = len(pieces) > len(self.pinned)
        self._heads: dict[tuple[int, ...], Prompt] = {}
        self._labels = [""] * len(pieces)
        """What is before the value of a field that is not at its place."""
        self._end = lower(Text("\n}"))
        if isinstance(writer, LinesWriter):
            loose = {*modules, *(column for bag in bags for column in bag)}
            for at in () if writer.labels_all else set(range(fields)) - loose:
                self._labels[at] = writer.label(writer.names[at])
            self._end = ()
        written = self.as_written if main is None else main
        self.main = self._until_named([at for at in written if at not in self.pinned])
        self._parts: dict[tuple[int, int, bool, bool], Prompt] = {}
        """What is sent for a cell: by field and piece, whether it is at its place, and whether no
        other field follows."""

    def _until_named(self, columns: Sequence[int]) -> tuple[int, ...]:
        """The columns before the first whose pieces begin with its name."""
        named = (place for place, at in enumerate(columns) if not self._labels[at])
        return tuple(columns[: next(named, len(columns))])

    def led_by(self, fields: Fields) -> Template:
        """The template for prompts whose fields are sent so: in lines, with the names above the
        data in the order in which most rows have them.

        fields: (rows, fields).
        """
        if not len(fields) or not any(self._labels):
            return self
        main = self._until_named(commonest(fields))
        return self if main == self.main else Template(*self._given, main)

    def names_sent(self, fields: Fields) -> int:
        """How many characters of names rows have because they leave the order of most."""
        sizes = np.array(list(map(len, self._labels)), np.int64)
        has_left, total = np.zeros(len(fields), np.bool_), 0
        for place, at in enumerate(commonest(fields)):
            has_left |= (fields[:, place] != at) | (not self._labels[at])
            total += int(sizes[fields[has_left, place]].sum())
        return total

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
        spans, main, end = list[Span](), self.main, len(order) - 1
        in_place = True
        for place, field in enumerate(order):
            in_place = in_place and place < len(main) and main[place] == field
            part = field, cells[field], in_place, place == end
            spans += self._parts.get(part) or self._part(*part)
        return (*begin, *spans, *self._end)

    def _part(self, field: int, cell: int, in_place: bool, is_last: bool) -> Prompt:
        text = ("" if in_place else self._labels[field]) + self._pieces[field][cell]
        after = "" if is_last else self._writer.separator
        # As `lower` makes it of a text in a Bag, which takes ten times as long.
        part: Prompt = (Span(text + after),)
        if field in self.modules:
            module = Span(Nest((Span(text),)), Role.USER, Reuse.INDEPENDENT, keep=1)
            part = (module, Span(after)) if after else (module,)
        if len(self._parts) == _MOST_PARTS:
            self._parts.clear()
        self._parts[field, cell, in_place, is_last] = part
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
        if isinstance(self._writer, LinesWriter):
            names = [] if self._writer.is_one else [self._labels[at][:-2] for at in self.main]
            above = f"{', '.join(names)}:\n" if names else ""
            return lower(Text(f"{query}\n\n{above}" if self._has_data else query))
        data = "\n\nGiven the following data:\n{\n" if self._has_data else ""
        has_json = self._has_data or not self.pinned
        system = Text(SYSTEM if has_json else SYSTEM_OF_TEXT, Role.SYSTEM)
        return lower(Seq((system, Text(f"Answer the below query:\n{query}{data}"))))


def pinned_in(query: Sequence[str | int]) -> tuple[int, ...]:
    """The fields whose place is fixed in a query's text, in the order of the text."""
    return tuple(dict.fromkeys(part for part in query if isinstance(part, int)))


def commonest(fields: Fields) -> list[int]:
    """The order that the most rows follow for as long as possible. fields: (rows, fields)."""
    order, rows = list[int](), fields
    for place in range(fields.shape[1]):
        column = rows[:, place]
        order.append(int(np.bincount(column).argmax()) if len(column) else place)
        rows = rows[column == order[-1]]
    return order
