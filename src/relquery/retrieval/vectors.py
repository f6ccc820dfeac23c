"""Search by an embedder's vectors: exact, by the cosine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relquery.arrays import Float32s
from relquery.errors import MissingExtraError
from relquery.retrieval.embedder import rounded
from relquery.retrieval.index import Found, Index, Indexing, best
from relquery.retrieval.known import KnownVectors

_AT_ONCE = 4096  # questions whose vectors are in memory at one time


@dataclass(frozen=True, slots=True)
class VectorIndex(Index):
    """known: gives the vectors of questions. vectors: (texts, dimensions), of length 1, in the
    memory of `flat`: faiss's index, which compares a question with each of them.
    """

    known: KnownVectors
    vectors: Float32s
    flat: Any

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """See Index. As many texts as there are, up to the limit, however far they are.

        Of texts that tie for the last place, any may be found.
        """
        limit = min(limit, len(self.vectors))
        for start in range(0, len(questions), _AT_ONCE):
            some = questions[start : start + _AT_ONCE]
            if not limit:
                yield from (Found(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in some)
                continue
            scores, texts = self.flat.search(self.known.of(some), limit)
            yield from (best(*row, limit) for row in zip(texts, rounded(scores), strict=True))


@dataclass(frozen=True, slots=True)
class ByVectors(Indexing):
    """Indexes of vectors, of which only those that are not known are made."""

    known: KnownVectors

    def index(self, texts: Sequence[str]) -> Index:
        """See Indexing. Raises what the embedder raises, and MissingExtraError without faiss."""
        faiss = _faiss()
        vectors = self.known.of_distinct(texts)
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        shared = faiss.rev_swig_ptr(flat.get_xb(), vectors.size).reshape(vectors.shape)
        return VectorIndex(self.known, shared if vectors.size else vectors, flat)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("Search by vectors", "retrieval") from error
    return faiss
