"""Search by vectors: exact by the cosine, and nothing is embedded twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from relquery.arrays import Float32s
from relquery.errors import RequestError
from relquery.retrieval.embedder import Embedder
from relquery.retrieval.vectors import ByVectors, KnownVectors, VectorIndex
from tests.retrieval.fakes import Letters

TEXTS = ["cab", "abc abc", "zebra", "xyz", "", "queue"]


def unit_vectors(texts: Sequence[str], embedder: Embedder | None = None) -> Float32s:
    return KnownVectors(embedder or Letters()).of(texts)


def test_finds_the_highest_cosines() -> None:
    index = ByVectors(KnownVectors(Letters())).index(TEXTS)
    vectors = unit_vectors(TEXTS)
    for question in ["bac", "zoo", "quiz"]:
        (hits,) = index.search([question], 3)
        scores = vectors @ unit_vectors([question])[0]
        np.testing.assert_allclose(hits.scores, np.sort(scores)[::-1][:3], atol=1e-5)
        np.testing.assert_allclose(hits.scores, scores[hits.texts], atol=1e-5)
        assert len(set(hits.texts)) == 3
    (hits,) = index.search(["a"], 100)  # more than there are
    assert sorted(hits.texts.tolist()) == list(range(len(TEXTS)))


def test_only_new_texts_are_embedded() -> None:
    embedder = Letters()
    indexing = ByVectors(KnownVectors(embedder))
    indexing.index(TEXTS)
    embedder.asked.clear()
    changed = ["new", *TEXTS[2:], "newer"]
    index = indexing.index(changed)
    assert embedder.asked == ["new", "newer"]
    assert isinstance(index, VectorIndex)
    np.testing.assert_array_equal(index.vectors, unit_vectors(changed))


def test_no_texts_are_an_index_that_finds_nothing_and_an_empty_one_is_near_to_nothing() -> None:
    indexing = ByVectors(KnownVectors(Letters()))
    texts: list[list[str]] = [[], ["a"], []]
    for some in texts:
        (hits,) = indexing.index(some).search(["a"], 3)
        assert hits.texts.tolist() == [0] * len(some)
    assert unit_vectors(["", "ab"]).tolist()[0] == [0.0] * 26


FAULTS: dict[str, tuple[object, str]] = {
    "nan": ([[0.5, 1.0], [np.nan, 0.5]], "NaN or infinity in vector 2"),
    "infinite": ([[1e300, 0.0], [1.0, 0.0]], "NaN or infinity in vector 1"),
    "few": (np.zeros((1, 2)), r"an array of shape \(1, 2\) for 2 texts"),
    "flat": (np.zeros(2), r"an array of shape \(2,\)"),
    "empty": (np.zeros((2, 0)), r"an array of shape \(2, 0\)"),
    "ragged": ([[1.0, 2.0], [1.0, 2.0, 3.0]], "vectors of 2 to 3 numbers"),
    "words": ([["a", "b"], ["c", "d"]], "a list that is not an array of numbers"),
    "complex": (np.ones((2, 2), np.complex64), "an array of complex64"),
    "nothing": (None, "a NoneType that is not an array of numbers"),
}


@dataclass(slots=True)
class Giving(Letters):
    """Gives what it is told to, or fails with it."""

    gives: Any = None

    def embed(self, texts: Sequence[str]) -> Float32s:
        if isinstance(self.gives, Exception):
            raise self.gives
        return cast(Float32s, self.gives)


def test_an_embedder_that_fails_or_gives_no_vectors_is_told() -> None:
    for fault, (vectors, message) in FAULTS.items():
        said = f"embedder letters {fault} returned {message}.*; expected one vector"
        with pytest.raises(RequestError, match=said):
            unit_vectors(["a", "b"], Giving(fault, gives=vectors))
    with pytest.raises(RequestError, match="embedder letters 1 failed with KeyError: 'tower'"):
        unit_vectors(["a"], Giving(gives=KeyError("tower")))
    whole_numbers = unit_vectors(["a", "b"], Giving(gives=[[3, 4], [3, 4]]))
    np.testing.assert_allclose(whole_numbers, [[0.6, 0.8]] * 2)


class Growing(Letters):
    """Vectors of another length with each call."""

    def embed(self, texts: Sequence[str]) -> Float32s:
        self.asked.append("")
        return np.ones((len(texts), 1 + len(self.asked)), np.float32)


def test_vectors_of_one_embedder_must_keep_their_dimensions() -> None:
    said = "returned vectors of 3 dimensions, and of 2 before.* another name"
    index = ByVectors(KnownVectors(Growing())).index(["a"])
    with pytest.raises(RequestError, match=said):
        list(index.search(["b"], 1))
    for ask in (ByVectors(KnownVectors(Growing())).index, KnownVectors(Growing()).of):
        ask(["a"])
        with pytest.raises(RequestError, match=said):
            ask(["a", "b"])
