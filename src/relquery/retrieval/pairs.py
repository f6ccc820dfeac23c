"""The nearness of texts to one another: pairs, nearest neighbours, and groups of near-
duplicates."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Float32s, Floats, Int64s
from relquery.retrieval.embedder import rounded
from relquery.retrieval.index import Found, best

_AT_ONCE = 512  # texts that are compared with all others at one time


def cosines(left: Float32s, right: Float32s) -> Floats:
    """(n,): of pairs of vectors of length 1, between -1 and 1."""
    return rounded(np.einsum("ij,ij->i", left, right, dtype=np.float64))


def nearest(left: Float32s, right: Float32s, limit: int) -> list[Found]:
    """For each vector on the left, up to `limit` on the right, nearest first."""
    numbers = np.arange(len(right))
    hits: list[Found] = []
    for start in range(0, len(left), _AT_ONCE):
        scores = rounded(left[start : start + _AT_ONCE] @ right.T)
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
    for start in range(0, len(vectors), _AT_ONCE):
        part = vectors[start : start + _AT_ONCE]
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
    for start in range(0, len(vectors) if len(leaders) else 0, _AT_ONCE):
        near = rounded(vectors[start : start + _AT_ONCE] @ leaders.T) >= threshold
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
