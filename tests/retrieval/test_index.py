"""Search by words: scikit-learn's weights, exact scores, ties by the order of texts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from relquery.arrays import Float32s
from relquery.retrieval.embedder import Trigrams
from relquery.retrieval.index import Tfidf, best, cosines, groups, nearest
from relquery.retrieval.vectors import KnownVectors

WORDS = [
    *("tower", "bridge", "river", "castle", "museum", "garden", "station"),
    *("market", "harbour", "temple"),
]


def made_up(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    texts = (" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(3 * count))
    return list(dict.fromkeys(texts))[:count]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.long) for i in (1, 2, 3, 4))]
)
def test_finds_what_scikit_learn_ranks_highest(seed: int) -> None:
    texts, questions = made_up(200, seed), made_up(40, seed + 100)
    vectorizer = TfidfVectorizer()
    weights = vectorizer.fit_transform(texts)
    scores = (vectorizer.transform(questions) @ weights.T).toarray()
    found = list(Tfidf().index(texts).search(questions, 5))
    assert len(found) == len(questions)
    for row, hits in zip(scores, found, strict=True):
        highest = np.sort(row)[::-1][: len(hits.texts)]
        np.testing.assert_allclose(row[hits.texts], highest, atol=1e-6)
        np.testing.assert_allclose(hits.scores, highest, atol=1e-6)
        assert len(hits.texts) == min(5, np.count_nonzero(row))


def test_an_index_from_its_arrays_finds_the_same() -> None:
    texts, questions = made_up(100, 1), [*made_up(20, 2), "", "unknown", "naïve 東京"]
    made = Tfidf().index([*texts, "naïve 東京"])
    loaded = Tfidf().load(made.arrays())
    for one, other in zip(made.search(questions, 3), loaded.search(questions, 3), strict=True):
        np.testing.assert_array_equal(one.texts, other.texts)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_nothing_is_found_among_texts_without_a_known_word() -> None:
    nothing: list[list[str]] = [[], ["a", "!", "東"], ["one two"]]
    for texts in nothing:
        made = Tfidf().index(texts)
        for index in (made, Tfidf().load(made.arrays())):
            assert [len(hits.texts) for hits in index.search(["three word", ""], 3)] == [0, 0]


def test_of_equal_scores_the_earlier_text_comes_first() -> None:
    texts = [f"word{i} same" for i in range(50)]
    (hits,) = Tfidf().index(texts).search(["same"], 4)
    assert hits.texts.tolist() == [0, 1, 2, 3]


def test_best_keeps_ties_at_the_limit_by_number() -> None:
    found = best(np.array([7, 3, 9, 1]), np.array([0.5, 0.5, 0.9, 0.5]), 3)
    assert found.texts.tolist() == [9, 1, 3]
    assert found.scores.tolist() == [0.9, 0.5, 0.5]


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
