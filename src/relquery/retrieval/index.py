"""Indexes of the texts nearest to a question; here by the words that they share (TF-IDF).

The weights are those of scikit-learn's TfidfVectorizer with its defaults: words of two characters
or more in lower case, smoothed inverse document frequency, vectors of length 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from relquery.arrays import Float32s, Floats, Int64s
from relquery.errors import MissingExtraError
from relquery.retrieval.embedder import tell_once

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
