"""What is sent for each distinct cell of a field, in one block of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import overload

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.sql.inputs.prompt import Form, piece, plain_piece

Write = Callable[[str | None], str]
_AT_ONCE = 1 << 16  # cells that are Python objects at one time


class Pieces(Sequence[str]):
    """The texts of an Arrow array without NULL, as Python strings made when they are read.

    array: the texts, as large strings.
    """

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
        # Of a memoryview, single numbers are read faster than of an array.
        self._offsets, self._data = offsets.data, memoryview(data or b"")

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Pieces: ...
    def __getitem__(self, index: int | slice) -> str | Pieces:
        if isinstance(index, slice):
            return Pieces(self.array[index])
        if not 0 <= index < len(self):
            raise IndexError(index)
        return str(self._data[self._offsets[index] : self._offsets[index + 1]], "utf-8")


def write_pieces(
    name: str, form: Form, cells: pa.Array, *, in_text: bool = False, write: Write | None = None
) -> tuple[Pieces, Int64s | None]:
    """What is sent for the distinct cells of a field, and the number of each cell's piece.

    Cells are written alike if their JSON is: NULL and JSON null. None if no two are. in_text:
    whether they stand in the text of the prompt, not in the data. write: gives what is sent for a
    cell in the data, different for different texts; None for JSON.
    """
    write = plain_piece if in_text else write or partial(piece, name, form)
    texts = _joined(
        [write(cell) for cell in cells.slice(start, _AT_ONCE).to_pylist()]
        for start in range(0, len(cells), _AT_ONCE)
    )
    if form == "string" and not in_text:
        return Pieces(texts), None
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) == len(texts):
        return Pieces(texts), None
    return Pieces(encoded.dictionary), encoded.indices.to_numpy()


def _joined(parts: Iterable[list[str]]) -> pa.Array:
    """All texts as one array. The data grows in place, so that it is in memory once."""
    data, ends = bytearray(), [np.zeros(1, np.int64)]
    for part in parts:
        array = pa.array(part, pa.large_string())
        _, offsets, texts = array.buffers()
        ends.append(len(data) + np.frombuffer(offsets, np.int64)[1 : len(array) + 1])
        data += texts or b""
    count = sum(map(len, ends)) - 1
    offsets = pa.py_buffer(np.concatenate(ends))
    return pa.Array.from_buffers(pa.large_string(), count, [None, offsets, pa.py_buffer(data)])
