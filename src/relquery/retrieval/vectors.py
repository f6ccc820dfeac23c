"""Search by an embedder's vectors: exact, by the cosine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery.arrays import Float32s
from relquery.errors import MissingExtraError
from relquery.retrieval.embedder import Embedder, rounded, unit_vectors
from relquery.retrieval.index import Arrays, Found, Index, Indexing, best

_AT_ONCE = 256  # questions whose vectors are in memory at one time
_DIGEST = 16  # bytes
Digests = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class VectorIndex(Index):
    """vectors: (texts, dimensions), of length 1. digests: (texts,), hashes of the texts. flat:
    faiss's index of the vectors, which compares a question with each of them.
    """

    embedder: Embedder
    vectors: Float32s
    digests: Digests
    flat: Any

    def arrays(self) -> Arrays:
        """See Index."""
        return {"vectors": self.vectors, "digests": self.digests.view(np.uint8)}

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
            vectors = unit_vectors(self.embedder, some, self.vectors.shape[1])
            scores, texts = self.flat.search(vectors, limit)
            yield from (best(*row, limit) for row in zip(texts, rounded(scores), strict=True))


@dataclass(frozen=True, slots=True)
class ByVectors(Indexing):
    """Indexes of an embedder's vectors. A text that an earlier index has is not embedded again."""

    embedder: Embedder

    @property
    def name(self) -> str:
        """See Indexing."""
        return f"vectors-1 {self.embedder.name}"

    def index(self, texts: Sequence[str], earlier: Arrays | None = None) -> Index:
        """See Indexing. Raises what the embedder raises, and MissingExtraError without faiss."""
        faiss = _faiss()
        digests = _digests(texts)
        known = _rows_of(earlier["digests"].view(digests.dtype)) if earlier else {}
        rows = [known.get(digest.tobytes(), -1) for digest in digests]
        new = [at for at, row in enumerate(rows) if row < 0]
        old = [at for at, row in enumerate(rows) if row >= 0]
        kept = earlier["vectors"][[rows[at] for at in old]] if earlier and old else None
        width = None if kept is None else kept.shape[1]
        found = unit_vectors(self.embedder, [texts[at] for at in new], width)
        vectors = np.empty((len(texts), found.shape[1]), np.float32)
        vectors[new] = found
        if kept is not None:
            vectors[old] = kept
        return self._of(faiss, vectors, digests)

    def load(self, arrays: Arrays) -> Index:
        """See Indexing."""
        digests = arrays["digests"].view(f"V{_DIGEST}")
        if len(digests) != len(arrays["vectors"]):
            raise ValueError("vectors and digests differ in length")
        return self._of(_faiss(), arrays["vectors"], digests)

    def _of(self, faiss: Any, vectors: Float32s, digests: Digests) -> VectorIndex:
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        return VectorIndex(self.embedder, vectors, digests, flat)


def _digests(texts: Sequence[str]) -> Digests:
    hashes = (
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
        for text in texts
    )
    return np.frombuffer(b"".join(hashes), f"V{_DIGEST}")


def _rows_of(digests: Digests) -> dict[bytes, int]:
    return {digest.tobytes(): row for row, digest in enumerate(digests)}


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("Search by vectors", "retrieval") from error
    return faiss
