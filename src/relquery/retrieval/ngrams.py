"""Vectors of the character trigrams of a text: near for texts that are spelled alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from relquery.arrays import Float32s
from relquery.errors import MissingExtraError
from relquery.retrieval.embedder import Embedder, tell_once

DIMENSIONS = 1024


@dataclass(frozen=True, slots=True)
class Trigrams(Embedder):
    """Counts of trigrams within words, in lower case, hashed to 1,024 dimensions with signs.

    Needs no model and no other texts, so a text always has the same vector. Of two texts without a
    trigram in common, the cosine is 0 with a standard deviation of about 0.03.
    """

    hint: str = ""
    """What is said when texts are first compared."""

    @property
    def name(self) -> str:
        """See Embedder."""
        return "trigrams-1"

    @property
    def label(self) -> str:
        """See Embedder."""
        return "spelling"

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder. Raises MissingExtraError without scikit-learn."""
        tell_once(self.hint)
        vectors: Float32s = _vectorizer().transform(texts).toarray()
        return vectors


@cache
def _vectorizer() -> Any:
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError as error:
        raise MissingExtraError("The similarity of texts", "retrieval") from error
    return HashingVectorizer(
        analyzer="char_wb", ngram_range=(3, 3), n_features=DIMENSIONS, dtype=np.float32
    )
