"""Search by words: scikit-learn's weights, exact scores, ties by the order of texts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from relquery.retrieval.index import Tfidf, best

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
