"""Bags: lists whose items are fields of their own, in any order (paper 000, queries of type T5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from relquery.arrays import Int32s
from relquery.sql.inputs.lines import Lines
from relquery.sql.inputs.pieces import Pieces
from relquery.sql.inputs.prompt import OF_ITEM, Form, piece


@dataclass(frozen=True, slots=True)
class Bag:
    """The distinct lists of a field. pieces: of all their items, once each; the first is empty and
    stands for no item. items: (lists, most items of a list), the pieces of each list.
    """

    pieces: Pieces
    items: Int32s

    @classmethod
    def of(cls, name: str, form: Form, lists: pa.Array, lines: Lines | None = None) -> Bag:
        """lists: JSON lists of texts, or NULL for none. lines: None for JSON."""
        write = partial(piece if lines is None else lines.named, name, OF_ITEM[form])
        known = {"": 0}
        rows = [
            [known.setdefault(write(item), len(known)) for item in _items(text)]
            for text in lists.to_pylist()
        ]
        items = np.zeros((len(rows), max(map(len, rows), default=0) or 1), np.int32)
        for row, numbers in enumerate(rows):
            items[row, : len(numbers)] = numbers
        return cls(Pieces(pa.array(known, pa.large_string())), items)


def _items(text: str | None) -> Sequence[str | None]:
    items: list[str | None] = [] if text is None else json.loads(text) or []
    return items
