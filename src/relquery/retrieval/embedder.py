"""Embedders, which give near texts near vectors: also by trigrams alone."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from relquery.arrays import Float32s, Floats
from relquery.errors import MissingExtraError, RelqueryError, RequestError, type_of

_LOG = logging.getLogger(__name__)
_DIGITS = 5  # of a cosine
_AT_ONCE = 1024  # texts of one part

Part = tuple[Sequence[int], Float32s]
"""The places of some texts, and their vectors."""


class Embedder(ABC):
    """A source of vectors of texts. `name` and `embed` are enough."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Changes with whatever changes the vectors, which are kept under this name."""

    @property
    def label(self) -> str:
        """What people call it. It must be quick to tell."""
        return self.name

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions), float32. Raises ModelError or RequestError."""

    def embed_in_parts(self, texts: Sequence[str]) -> Iterator[Part]:
        """The vectors of texts as they come, each text once. What has come is kept if the rest
        fails. For embedders that have several parts under way at once.
        """
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            yield range(start, start + len(some)), self.embed(some)


@cache
def tell_once(hint: str) -> None:
    """Say how texts are compared, once in a process; "" says nothing."""
    if hint:
        _LOG.warning("%s", hint)


def unit_parts(
    embedder: Embedder, texts: Sequence[str], dimensions: int | None = None
) -> Iterator[Part]:
    """The vectors of texts as they come: of length 1, or 0 for a text without a vector.

    dimensions: of earlier vectors of this embedder, which these will be compared with. Raises what
    the embedder raises, and RequestError if it fails otherwise or gives something else.
    """
    parts = embedder.embed_in_parts(texts)
    while (part := _next(parts, embedder.name)) is not None:
        places, units = part
        vectors = as_vectors(units, len(places), embedder.name)
        _check_dimensions(embedder, vectors, dimensions)
        dimensions = vectors.shape[1]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        yield places, np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _next(parts: Iterator[Part], name: str) -> Part | None:
    try:
        return next(parts, None)
    except RelqueryError:
        raise
    except Exception as error:  # of a user's class
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise RequestError(f"The embedder {name} failed with {said}.") from error


def as_vectors(found: object, texts: int, name: str) -> Float32s:
    """(texts, dimensions): what an embedder gave. Raises RequestError if it is something else.

    name: of the embedder.
    """
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            vectors = np.asarray(found).astype(np.float32, casting="same_kind")
    except (RuntimeError, TypeError, ValueError) as error:  # of several lengths, or no numbers
        raise _wrong(name, _in_words(found), texts) from error
    if vectors.ndim != 2 or len(vectors) != texts or not vectors.shape[1]:
        raise _wrong(name, f"an array of shape {vectors.shape}", texts)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise _wrong(name, f"NaN or infinity in vector {int(finite.argmin()) + 1}", texts)
    return vectors


def _wrong(name: str, got: str, texts: int) -> RequestError:
    return RequestError(
        f"The embedder {name} returned {got} for {texts} text{'s' if texts > 1 else ''}; expected "
        "one vector of finite numbers per text, all of the same length."
    )


def _in_words(found: object) -> str:
    """What something is that is not an array of numbers."""
    if isinstance(found, np.ndarray):
        return f"an array of {found.dtype}"
    if isinstance(found, Sequence) and all(isinstance(row, Sequence | np.ndarray) for row in found):
        lengths = sorted({len(row) for row in found})
        if len(lengths) > 1:
            return f"vectors of {lengths[0]} to {lengths[-1]} numbers"
    return f"{type_of(found)} that is not an array of numbers"


def _check_dimensions(embedder: Embedder, vectors: Float32s, expected: int | None) -> None:
    """Raises RequestError if vectors cannot be compared with earlier ones of an embedder."""
    if expected is not None and vectors.shape[1] != expected:
        raise RequestError(
            f"The embedder {embedder.name} returned vectors of {vectors.shape[1]} dimensions, and "
            f"of {expected} before. Vectors under one name must have the same number of "
            "dimensions. If the model has changed, give the embedder another name, or keep indexes "
            "in another folder."
        )


def rounded(cosines: Float32s | Floats) -> Floats:
    """Without the errors of sums, so that equal texts have 1.0, however they are compared."""
    values: Floats = np.clip(cosines.astype(np.float64).round(_DIGITS), -1.0, 1.0)
    return values


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
        """Changes with whatever changes the vectors, which are kept under this name."""
        return "trigrams-1"

    @property
    def label(self) -> str:
        """What people call it."""
        return "spelling"

    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions), float32. Raises MissingExtraError without scikit-learn."""
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
