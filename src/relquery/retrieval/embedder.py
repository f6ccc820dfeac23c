"""What turns texts into vectors, so that near texts have near vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from relquery.arrays import Float32s, Floats
from relquery.errors import RequestError

_DIGITS = 5  # of a cosine


class Embedder(ABC):
    """Gives each text a vector. `name` and `embed` are enough."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Changes with whatever changes the vectors, which are kept under this name."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions), float32. Raises ModelError or RequestError."""


def unit_vectors(embedder: Embedder, texts: Sequence[str]) -> Float32s:
    """(texts, dimensions): the vectors of texts, of length 1, or 0 for a text without a vector.

    Raises RequestError if the embedder gives something else than a vector of numbers per text.
    """
    if not texts:
        return np.zeros((0, 0), np.float32)
    vectors = np.asarray(embedder.embed(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise RequestError(
            f"The embedder {embedder.name} returned an array of shape {vectors.shape} for "
            f"{len(texts)} texts; expected one vector of finite numbers per text."
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Float32s = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def rounded(cosines: Float32s | Floats) -> Floats:
    """Without the errors of sums, so that equal texts have 1.0, however they are compared."""
    values: Floats = np.clip(cosines.astype(np.float64).round(_DIGITS), -1.0, 1.0)
    return values
