"""Predicts from the words of a row whether it passes a filter, learnt from rows that were judged.

A logistic regression over the words of the row's fields, weighted by how rare they are. Filters
that go first where they are likely to drop a row are Larch's idea (arXiv 2606.07923); words take
microseconds a row where embeddings take a network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools, Floats, Int64s

LEAST = 48
"""So many judged rows make a model; of a few, words say nothing."""

MOST = 1024
"""So many judged rows are learnt from: more take longer and teach little."""

_STEPS = 60
_RATE, _MOMENTUM = 0.15, 0.9
_GAIN = 0.98  # of the loss without words, on rows that were not learnt from; else chance
_AT_ONCE = 8192  # rows whose words are in memory
_SURE = 0.01  # no prediction is surer than this


@dataclass(frozen=True, slots=True)
class WordModel:
    """words: those that are known. rarity, weights: (words,). bias: the logit without a word."""

    words: pa.Array
    rarity: Floats
    weights: Floats
    bias: float

    def passing(self, texts: pa.Array) -> Floats:
        """(texts,), how likely each passes."""
        parts = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
        return np.concatenate(
            [self._of(*_known_words(part, self.words), len(part)) for part in parts]
        )

    def _of(self, row: Int64s, word: Int64s, rows: int) -> Floats:
        logits = np.bincount(row, self.weights[word] * _scaled(row, self.rarity[word]), rows)
        likely: Floats = 1 / (1 + np.exp(-self.bias - logits))
        return likely.clip(_SURE, 1 - _SURE)


def learn(texts: pa.Array, passed: Bools) -> WordModel | None:
    """A model of judged rows; None where words do not foretell rows that were not learnt from."""
    odd = np.random.default_rng(0).permutation(len(passed)) % 2 == 1
    lost = lost_without = 0.0
    for half, other in ((odd, ~odd), (~odd, odd)):
        share = passed[half].mean()
        if not 0 < share < 1:
            return None
        model = _fit(texts.filter(pa.array(half)), passed[half])
        lost += _loss(model.passing(texts.filter(pa.array(other))), passed[other])
        lost_without += _loss(np.full(int(other.sum()), share), passed[other])
    return _fit(texts, passed) if lost < _GAIN * lost_without else None


def _fit(texts: pa.Array, passed: Bools) -> WordModel:
    rows = len(passed)
    words = pc.list_flatten(_split(texts)).unique()
    row, word = _known_words(texts, words)
    rarity = np.log((rows + 1) / (np.bincount(word, minlength=len(words)) + 1))
    scaled = _scaled(row, rarity[word])
    weights, momentum = np.zeros(len(words)), np.zeros(len(words))
    rate = _RATE / (np.bincount(word, scaled**2, len(words)) / 4 + 2)
    bias = float(np.log((passed.sum() + 1) / ((~passed).sum() + 1)))
    for _ in range(_STEPS):
        logits = bias + np.bincount(row, weights[word] * scaled, rows)
        error = 1 / (1 + np.exp(-logits)) - passed
        momentum *= _MOMENTUM
        momentum += np.bincount(word, error[row] * scaled, len(words)) + weights
        weights -= rate * momentum
        bias -= float(error.sum()) / (rows / 4 + 1)
    return WordModel(words, rarity, weights, bias)


def _split(texts: pa.Array) -> pa.Array:
    return pc.split_pattern_regex(pc.utf8_lower(texts), r"[^\pL\pN]+")


def _known_words(texts: pa.Array, words: pa.Array) -> tuple[Int64s, Int64s]:
    """The rows and the numbers of their known words."""
    lists = _split(texts)
    word = pc.index_in(pc.list_flatten(lists), words)
    row, is_known = pc.list_parent_indices(lists).to_numpy(), word.is_valid()
    known = is_known.to_numpy(zero_copy_only=False)
    return row[known], word.filter(is_known).to_numpy()


def _scaled(row: Int64s, rarity: Floats) -> Floats:
    """The rarity of the words of each row, so that long rows do not outweigh short ones."""
    scaled: Floats = rarity / np.sqrt(np.maximum(np.bincount(row), 1))[row]
    return scaled


def _loss(likely: Floats, passed: Bools) -> float:
    return -float(np.log(np.where(passed, likely, 1 - likely)).sum())
