"""What finds the texts nearest to a question, and how it is kept in a file."""

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
    def arrays(self) -> Arrays:
        """All that has to be kept to have the index again."""

    @abstractmethod
    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question. Of equal scores, the lower number comes first."""


class Indexing(ABC):
    """A way to index texts."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Changes with whatever changes an index of the same texts."""

    @abstractmethod
    def index(self, texts: Sequence[str], earlier: Arrays | None = None) -> Index:
        """An index of texts. earlier: of an index of other texts under the same name, to reuse."""

    @abstractmethod
    def load(self, arrays: Arrays) -> Index:
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
