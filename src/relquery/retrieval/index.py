"""What finds the texts nearest to a question, and what can be kept in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from relquery.arrays import Float32s, Floats, Int64s

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Found(NamedTuple):
    """The texts nearest to one question, nearest first: their numbers and their scores."""

    texts: Int64s
    scores: Floats | Float32s


class Index(ABC):
    """Some texts, numbered from 0, to search."""

    @abstractmethod
    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question. Of equal scores, the lower number comes first."""


class SavedIndex(Index):
    """An index that can be kept in a file."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """All that has to be kept to have the index again."""


class Indexing(ABC):
    """A way to index texts."""

    @abstractmethod
    def index(self, texts: Sequence[str]) -> Index:
        """An index of texts."""


class SavedIndexing(Indexing):
    """A way to index texts whose indexes can be kept in files."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Changes with whatever changes an index of the same texts."""

    @abstractmethod
    def index(self, texts: Sequence[str]) -> SavedIndex:
        """An index of texts."""

    @abstractmethod
    def load(self, arrays: Arrays) -> SavedIndex:
        """The index that gave these arrays. Raises KeyError or ValueError for other arrays."""


def best(texts: Int64s, scores: Floats | Float32s, limit: int) -> Found:
    """The `limit` highest scores. Of equal scores, the lower number of a text comes first.

    texts: (n,), numbers of texts. scores: (n,), theirs.
    """
    if limit < len(scores):
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        kept = scores >= least
        texts, scores = texts[kept], scores[kept]
    order = np.lexsort((texts, -scores))[:limit]
    return Found(texts[order].astype(np.int64), scores[order])
