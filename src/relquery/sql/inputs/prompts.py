"""The prompts of a call's inputs, each built when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.prompt import Prompt
from relquery.sql.inputs.prompt import Template
from relquery.table.measure import Fields

_AT_ONCE = 1024  # rows whose codes are Python numbers at one time


class Prompts(Sequence[Prompt]):
    """The prompts of some inputs in the order to send, as a sequence.

    A million prompts take a gigabyte. Whoever reads these one after the other has few at a time;
    reading one twice builds it twice.

    codes: (inputs, fields), numbers of their pieces. rows: (n,), the inputs to send. fields:
    (n, fields), the order of fields in each prompt; None for the query's.
    """

    def __init__(
        self, template: Template, codes: Int32s, rows: Int64s, fields: Fields | None
    ) -> None:
        self._template, self._codes, self._rows, self._fields = template, codes, rows, fields

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> Prompts: ...
    def __getitem__(self, index: int | slice) -> Prompt | Prompts:
        if isinstance(index, slice):
            fields = None if self._fields is None else self._fields[index]
            return Prompts(self._template, self._codes, self._rows[index], fields)
        at = range(len(self))[index]
        (found,) = self[at : at + 1]
        return found

    def __iter__(self) -> Iterator[Prompt]:
        for start in range(0, len(self), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            cells = self._codes[self._rows[part]].tolist()
            orders = [self._template.as_written] * len(cells)
            if self._fields is not None:
                orders = np.asarray(self._fields[part]).tolist()
            yield from map(self._template.prompt, cells, orders)
