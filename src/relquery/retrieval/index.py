"""The texts nearest to a question by the words that they share (TF-IDF), and to one another.

The weights of words are those of scikit-learn's TfidfVectorizer with its defaults: words of two
characters or more in lower case, smoothed inverse document frequency, vectors of length 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from relquery.arrays import Float32s, Floats, Int64s
from relquery.errors import MissingExtraError
from relquery.retrieval.embedder import rounded, tell_once

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Found(NamedTuple):
    """The texts nearest to one question, nearest first: their numbers and their scores."""

    texts: Int64s
    scores: Floats | Float32s


class Index(ABC):
    """Some texts, numbered from 0, to search."""

    @abstractmethod
    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question. Of equal scores, the lower number comes first."""


def best(texts: Int64s, scores: Floats | Float32s, limit: int) -> Found:
    """The `limit` highest scores. Of equal scores, the lower number of a text comes first.

    texts: (n,), numbers of texts. scores: (n,), theirs.
    """
    if limit < len(scores):
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        kept = scores >= least
        texts, scores = texts[kept], scores[kept]
    order = np.lexsort((texts, -scores))[:limit]
    return Found(texts[order].astype(np.int64), scores[order])


_AT_ONCE = 64  # questions whose scores are in memory at one time
_NOTHING = Found(np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class TfidfIndex(Index):
    """terms: in the order of the rows of `weights`. idf: (terms,). weights: (terms, texts), sparse,
    the weight of each term in each text. vectorizer: of questions.
    """

    terms: list[str]
    idf: Float32s
    weights: Any
    vectorizer: Any

    def arrays(self) -> Arrays:
        """All that has to be kept to have the index again."""
        terms = "\n".join(self.terms).encode("utf-8", "surrogatepass")
        return {
            "terms": np.frombuffer(terms, np.uint8),
            "idf": self.idf,
            "data": self.weights.data,
            "texts": self.weights.indices,
            "begin": self.weights.indptr,
            "count": np.array(self.weights.shape[1]),
        }

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """See Index. Texts that share no word with a question are not found."""
        for start in range(0, len(questions), _AT_ONCE):
            scores = self.vectorizer.transform(questions[start : start + _AT_ONCE]) @ self.weights
            for begin, end in zip(scores.indptr[:-1], scores.indptr[1:], strict=True):
                yield best(scores.indices[begin:end], scores.data[begin:end], limit)


class WordlessIndex(Index):
    """Texts without a single word, so that nothing is found."""

    def arrays(self) -> Arrays:
        """All that has to be kept to have the index again."""
        return {}

    def search(self, questions: Sequence[str], limit: int) -> Iterator[Found]:
        """Up to `limit` texts for each question."""
        return iter([_NOTHING] * len(questions))


@dataclass(frozen=True, slots=True)
class Tfidf:
    """Indexes of words. They are made in seconds, so nothing of an earlier one is reused."""

    hint: str = ""
    """What is said when texts are first searched."""

    name: ClassVar = "tfidf-1"
    """Changes with whatever changes an index of the same texts."""

    def index(self, texts: Sequence[str]) -> TfidfIndex | WordlessIndex:
        """An index of texts. Raises MissingExtraError without scikit-learn."""
        tell_once(self.hint)
        vectorizer = _vectorizer()
        try:
            weights = vectorizer.fit_transform(texts)
        except ValueError:  # no text has a word
            return WordlessIndex()
        terms = vectorizer.get_feature_names_out().tolist()
        return TfidfIndex(terms, vectorizer.idf_, weights.T.tocsr(), vectorizer)

    def load(self, arrays: Arrays) -> TfidfIndex | WordlessIndex:
        """The index that gave these arrays. Raises KeyError or ValueError for other arrays."""
        tell_once(self.hint)
        if not arrays:
            return WordlessIndex()
        from scipy import sparse

        terms = arrays["terms"].tobytes().decode("utf-8", "surrogatepass").split("\n")
        vectorizer = _vectorizer(vocabulary={term: index for index, term in enumerate(terms)})
        vectorizer.idf_ = arrays["idf"]
        parts = (arrays["data"], arrays["texts"], arrays["begin"])
        weights = sparse.csr_matrix(parts, shape=(len(terms), int(arrays["count"])))
        return TfidfIndex(terms, arrays["idf"], weights, vectorizer)


def _vectorizer(**options: Any) -> Any:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise MissingExtraError("Search by words", "retrieval") from error
    return TfidfVectorizer(dtype=np.float32, **options)


_COMPARED = 512  # texts that are compared with all others at one time


def cosines(left: Float32s, right: Float32s) -> Floats:
    """(n,): of pairs of vectors of length 1, between -1 and 1."""
    return rounded(np.einsum("ij,ij->i", left, right, dtype=np.float64))


def nearest(left: Float32s, right: Float32s, limit: int) -> list[Found]:
    """For each vector on the left, up to `limit` on the right, nearest first."""
    numbers = np.arange(len(right))
    hits: list[Found] = []
    for start in range(0, len(left), _COMPARED):
        scores = rounded(left[start : start + _COMPARED] @ right.T)
        hits += [best(numbers, row, limit) for row in scores]
    return hits


def groups(vectors: Float32s, threshold: float) -> Int64s:
    """(n,): the number of the first text of each text's group.

    A text belongs to the first earlier text that begins a group and whose cosine is at least
    `threshold`; else it begins a group. So no two texts that begin groups are that near, and each
    text is that near to the one that begins its group.
    """
    first: Int64s = np.arange(len(vectors))
    leaders = first[:0]
    for start in range(0, len(vectors), _COMPARED):
        part = vectors[start : start + _COMPARED]
        numbers = np.arange(start, start + len(part))
        if len(leaders):
            leaders_near = first_near(part, vectors[leaders], threshold)
            is_near = leaders_near >= 0
            first[numbers[is_near]] = leaders[leaders_near[is_near]]
            numbers = numbers[~is_near]
        leaders = np.concatenate((leaders, _begin(vectors[numbers], numbers, threshold, first)))
    return first


def first_near(vectors: Float32s, leaders: Float32s, threshold: float) -> Int64s:
    """(n,): for each vector, the first leader whose cosine is at least `threshold`; -1 for none."""
    leader_of: Int64s = np.full(len(vectors), -1)
    for start in range(0, len(vectors) if len(leaders) else 0, _COMPARED):
        near = rounded(vectors[start : start + _COMPARED] @ leaders.T) >= threshold
        leader_of[start : start + len(near)] = np.where(near.any(axis=1), near.argmax(axis=1), -1)
    return leader_of


def _begin(vectors: Float32s, numbers: Int64s, threshold: float, first: Int64s) -> Int64s:
    """Those of some texts that begin groups. Writes the groups of the others into `first`.

    vectors, numbers: of texts that are in no group that began before them.
    """
    near = rounded(vectors @ vectors.T) >= threshold
    leaders: list[int] = []
    for index, number in enumerate(numbers):
        leader = next((candidate for candidate in leaders if near[index, candidate]), None)
        if leader is not None:
            first[number] = numbers[leader]
        else:
            leaders.append(index)
    return numbers[leaders]
