"""Cosines, nearest neighbours and groups of near-duplicates, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from relquery.arrays import Float32s
from relquery.retrieval.embedder import Trigrams
from relquery.retrieval.pairs import cosines, groups, nearest
from relquery.retrieval.vectors import KnownVectors


def unit(count: int, width: int, seed: int) -> Float32s:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    unit_vectors: Float32s = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit_vectors


@pytest.mark.parametrize(("count", "threshold"), [(0, 0.5), (1, 0.5), (1200, 0.8), (1200, 0.99)])
def test_a_text_joins_the_first_group_that_is_near(count: int, threshold: float) -> None:
    vectors = unit(count, 3, count)
    leaders: list[int] = []
    expected = []
    for at, vector in enumerate(vectors):
        near = (one for one in leaders if vectors[one] @ vector >= threshold)
        first = next(near, at)
        leaders += [at] * (first == at)
        expected.append(first)
    assert groups(vectors, threshold).tolist() == expected


def test_nearest_are_in_order_and_ties_go_by_number() -> None:
    left, right = unit(700, 8, 1), unit(50, 8, 2)
    scores = (left.astype(float) @ right.T.astype(float)).round(5)
    for row, found in zip(scores, nearest(left, right, 4), strict=True):
        expected = np.lexsort((np.arange(50), -row))[:4]
        np.testing.assert_allclose(found.scores, row[expected], atol=2e-5)
    (found,) = nearest(left[:1], left[[0, 0, 0]], 2)
    assert (found.texts.tolist(), found.scores.tolist()) == ([0, 1], [1.0, 1.0])


def test_equal_texts_have_a_similarity_of_exactly_1() -> None:
    texts = [f"text number {i} of {i * i}" for i in range(300)]
    vectors = KnownVectors(Trigrams(), keeps=False).of(texts)
    assert set(cosines(vectors, vectors)) == {1.0}
    assert groups(np.concatenate((vectors, vectors)), 1.0).tolist() == [*range(300)] * 2


def test_texts_that_are_spelled_alike_are_near() -> None:
    one, alike, other = KnownVectors(Trigrams(), keeps=False).of(
        ["Acme Corp", "ACME corp.", "Globex"]
    )
    near, far = cosines(np.stack([one, one]), np.stack([alike, other]))
    assert near > 0.7
    assert far < 0.2
