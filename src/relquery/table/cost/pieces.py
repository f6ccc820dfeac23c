"""Tokenises each item once and assembles prompts from these tokens, without a tokenizer.

This misses tokens that span two items, so it only serves to compare schedules. Reported numbers are
counted on whole prompts.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from relquery import _native
from relquery.arrays import Int32s
from relquery.table.cost.tokens import Encode, Tokens, tokenize
from relquery.table.items import Beginnings, Items, least_table

# As byte-pair tokenizers with 100,000 tokens cut a text: words with the character before them,
# numbers of three digits, marks with the line break after them, white space. The lengths are those
# that give the counts of one of them, cl100k, on the documents and tables of this project.
_PIECE = re.compile(
    r"[^\r\n\w]?\b[a-zA-Z]{1,7}|[a-zA-Z]{1,3}|\d{1,3}|[^\W\d_a-zA-Z]{1,2}"
    r"| ?[^\w\s]{1,4}[\r\n]*|\s+|_"
)


class Pieces(NamedTuple):
    """prefix: tokens before the fields of every row. items: tokens of each item's line."""

    prefix: Int32s
    items: Tokens

    def put_together(self, sent: Int32s) -> Tokens:
        """Prompts of rows. sent: (n, m), items in the order sent."""
        lengths = self.items.lengths[sent].sum(axis=1) + len(self.prefix)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = np.empty(offsets[-1], np.int32)
        _native.join(self.prefix, self.items.ids, self.items.offsets, sent, ids)
        return Tokens(ids, offsets)


def tokenize_items(items: Items, encode: Encode, prefix: str) -> Pieces:
    """Tokens of "column: value" and the line break after it, by item; copies stay empty."""
    lines: list[str] = []
    for column, texts in enumerate(items.texts):
        label = items.written[column]
        lines += [f"{label}{text}\n" for text in pc.fill_null(texts, "").to_pylist()]
    start = tokenize([prefix], encode).ids if prefix else np.empty(0, np.int32)
    return Pieces(start, tokenize(lines, encode))


def begin_alike(pieces: Pieces, same: Int32s) -> Beginnings:
    """The prefixes that items share, in tokens. same: (items,), see Items.

    Sorts the tokens of every item, so it suits only small tables.
    """
    ids, offsets = pieces.items.ids.tolist(), pieces.items.offsets.tolist()
    tokens = [ids[offsets[item] : offsets[item + 1]] for item in same.tolist()]
    order = sorted(range(len(tokens)), key=lambda item: (tokens[item], item))
    shared = np.zeros(len(order), np.int64)
    for place, (before, item) in enumerate(pairwise(order), start=1):
        shared[place] = _agreement(tokens[before], tokens[item])
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    return Beginnings(rank, shared, least_table(shared))


def _agreement(a: list[int], b: list[int]) -> int:
    """The number of leading tokens that two items share."""
    differing = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differing, min(len(a), len(b)))


class EstimatedTokens:
    """Pieces of words as a stand-in for tokens, for use without a tokenizer.

    English text and JSON have about as many pieces as tokens of a common vocabulary: 5% fewer to 7%
    more by table than Llama 3's.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Ids of the pieces of each text; equal pieces have equal ids in all calls."""
        ids = self._ids
        return [
            [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)] for text in texts
        ]
