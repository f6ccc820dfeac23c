"""Made-up passages and questions, and an exact search of them by scikit-learn alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from relquery.arrays import Floats, Int64s

_WORDS, _OF_QUESTION, _AT_ONCE = 50_000, 8, 32


def passages(count: int, words: int, seed: int = 0) -> pa.Table:
    """One column, `text`: so many words each, whose frequencies follow Zipf's law."""
    drawn = _drawn(np.random.default_rng(seed), (count, words))
    return pa.table({"text": _texts(drawn)})


def questions(corpus: pa.Table, count: int, seed: int = 0) -> pa.Table:
    """One column, `question`: words of a passage each, in any order, and half as many others."""
    rng = np.random.default_rng([seed, 1])
    others = _texts(_drawn(rng, (count, _OF_QUESTION // 2)))
    asked = []
    for at, more in zip(rng.integers(0, len(corpus), count).tolist(), others, strict=True):
        own = rng.permutation(corpus["text"][at].as_py().split())[:_OF_QUESTION]
        asked.append(" ".join([*own, more]))
    return pa.table({"question": asked})


def _drawn(rng: np.random.Generator, shape: tuple[int, int]) -> Int64s:
    cumulative = np.cumsum(1 / np.arange(1, _WORDS + 1))
    words: Int64s = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1])
    return words


def _texts(drawn: Int64s) -> list[str]:
    known = np.array([f"word{number}" for number in range(_WORDS)], dtype=object)
    return [" ".join(known[row]) for row in drawn]


def recall(corpus: Sequence[str], asked: Sequence[str], found: Sequence[Sequence[str]]) -> float:
    """The share of the best ranks that what was found has by scikit-learn's own scores.

    found: texts for each question, best first. At each rank, the score of the text found is
    compared with the best at this rank, so that of equal texts either is right.
    """
    right = total = 0
    place = {text: at for at, text in enumerate(corpus)}
    scored = _scores(corpus, asked)
    for scores, texts in zip(scored, found, strict=True):
        best = -np.sort(-scores)[: len(texts)]
        ours = scores[[place[text] for text in texts]]
        right += int(np.isclose(ours, best, rtol=0, atol=1e-6).sum())
        total += len(texts)
    return right / total


def _scores(corpus: Sequence[str], asked: Sequence[str]) -> Iterator[Floats]:
    """Of all texts, for each question: products of the vectors of a TfidfVectorizer."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    weights = vectorizer.fit_transform(corpus).T.tocsr()
    for start in range(0, len(asked), _AT_ONCE):
        vectors = vectorizer.transform(asked[start : start + _AT_ONCE])
        yield from (vectors @ weights).toarray()
