"""Search by vectors: exact by the cosine, and nothing is embedded twice."""

from __future__ import annotations

import numpy as np
import pytest

from relquery.arrays import Float32s
from relquery.errors import RequestError
from relquery.retrieval.embedder import Embedder, unit_vectors
from relquery.retrieval.vectors import ByVectors
from tests.retrieval.fakes import Letters

TEXTS = ["cab", "abc abc", "zebra", "xyz", "", "queue"]


def test_finds_the_highest_cosines() -> None:
    embedder = Letters()
    index = ByVectors(embedder).index(TEXTS)
    vectors = unit_vectors(embedder, TEXTS)
    for question in ["bac", "zoo", "quiz"]:
        (hits,) = index.search([question], 3)
        scores = vectors @ unit_vectors(embedder, [question])[0]
        np.testing.assert_allclose(hits.scores, np.sort(scores)[::-1][:3], atol=1e-5)
        np.testing.assert_allclose(hits.scores, scores[hits.texts], atol=1e-5)
        assert len(set(hits.texts)) == 3


def test_more_than_there_are_are_all_found() -> None:
    (hits,) = ByVectors(Letters()).index(TEXTS).search(["a"], 100)
    assert sorted(hits.texts.tolist()) == list(range(len(TEXTS)))


def test_only_new_texts_are_embedded() -> None:
    embedder = Letters()
    earlier = ByVectors(embedder).index(TEXTS).arrays()
    embedder.asked.clear()
    changed = ["new", *TEXTS[2:], "newer"]
    index = ByVectors(embedder).index(changed, earlier)
    assert embedder.asked == ["new", "newer"]
    afresh = ByVectors(Letters()).index(changed)
    np.testing.assert_array_equal(index.arrays()["vectors"], afresh.arrays()["vectors"])


def test_no_texts_are_an_index_that_finds_nothing() -> None:
    indexing = ByVectors(Letters())
    index = indexing.load(indexing.index([]).arrays())
    (hits,) = index.search(["a"], 3)
    assert len(hits.texts) == 0
    (hits,) = indexing.index(["a"], index.arrays()).search(["a"], 3)
    assert hits.texts.tolist() == [0]


def test_a_text_without_a_vector_is_near_to_nothing() -> None:
    assert unit_vectors(Letters(), ["", "ab"]).tolist()[0] == [0.0] * 26


class Wrong(Letters):
    def embed(self, texts: list[str]) -> Float32s:  # type: ignore[override]
        return {"nan": np.full((len(texts), 2), np.nan), "few": np.zeros((0, 2))}[self.version]


@pytest.mark.parametrize("fault", ["nan", "few"])
def test_an_embedder_that_gives_no_vectors_is_named(fault: str) -> None:
    broken: Embedder = Wrong(fault)
    with pytest.raises(RequestError, match=f"embedder letters {fault} returned"):
        unit_vectors(broken, ["a"])
