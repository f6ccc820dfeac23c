"""The distinct texts of a column, with an index over them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from relquery.retrieval.index import Found, Index

_AT_ONCE = 1 << 14  # texts that are Python strings at one time


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """texts: distinct, without NULL, in the order of first appearance. index: over them."""

    texts: pa.Array
    index: Index

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question, best first."""
        return self.index.search(questions, min(limit, max(len(self.texts), 1)))


class Strings(Sequence[str]):
    """An Arrow array of texts as a sequence of Python strings, made some at a time."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        found = self._texts[at]
        texts: str | list[str] = found.to_pylist() if isinstance(at, slice) else found.as_py()
        return texts

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]


def distinct_texts(column: pa.ChunkedArray) -> pa.Array:
    """The texts of a column that a corpus has: equal ones once, no NULL and nothing empty."""
    import pyarrow.compute as pc

    texts = column.cast(pa.large_string()).drop_null()
    found = texts.unique()
    return found.filter(pc.not_equal(found, ""))


def digest(texts: pa.Array) -> str:
    """A hash of texts and their order."""
    whole = hashlib.blake2b(digest_size=16)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends or b"", np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if len(texts):
        whole.update(np.diff(offsets).tobytes())
        whole.update(memoryview(data or b"")[offsets[0] : offsets[-1]])
    return whole.hexdigest()
