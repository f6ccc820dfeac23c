"""Which tokens attend to which cached segments, so that what requests share is read once.

The contexts of a batch's chunks form a trie of slots: chunks whose contexts begin with the same
slots share a segment. Each distinct segment becomes one *job*, the queries of all chunks below it
against its slots, and jobs of similar shape are padded into one *bucket*, which is one call of
the attention kernel. The partial results of a token are merged by their log-sum-exp (Hydragen;
cascade inference). Pure numpy: a plan is made once per step and serves all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from relquery.engine.executor import Chunk

Ints = npt.NDArray[np.int64]

CALL_OVERHEAD = 4_000
"""Query-key pairs whose computation takes about as long as one more kernel call."""
MOVE = 16
"""Query-key pairs whose computation takes about as long as gathering one token."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Queries against one segment.

    queries: (q,) indices into the packed batch. keys: (k,) cache slots, or, if `causal`, the
    queries' own indices into the packed batch. position: of the first key, in its request.
    """

    queries: Ints
    keys: Ints
    position: int
    causal: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return len(self.queries), len(self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Jobs padded to one shape: one kernel call.

    queries: (jobs, q) and keys: (jobs, k), padded with zeros. query_counts, key_counts,
    positions: (jobs,). causal: keys are indices into the packed batch and query i sees keys 0..i,
    so that padding on the right needs no mask.
    """

    queries: Ints
    keys: Ints
    query_counts: Ints
    key_counts: Ints
    positions: Ints
    causal: bool


def plan_buckets(chunks: Sequence[Chunk], share: bool = True) -> list[Bucket]:
    """Buckets that together let every token of the batch attend to all that it should.

    chunks: in packed order, token i of the batch being token i of their concatenation. share:
    whether a segment that several chunks have in common becomes one job; else one per chunk.
    """
    return [_pad(jobs) for jobs in _similar(list(_jobs(chunks, share)))]


def _jobs(chunks: Sequence[Chunk], share: bool) -> Iterator[Job]:
    starts = np.cumsum([0] + [len(chunk.tokens) for chunk in chunks])
    queries = [np.arange(start, stop) for start, stop in pairwise(starts)]
    for own in queries:
        if len(own) > 1:
            yield Job(own, own, 0, causal=True)
    contexts = [_context(chunk) for chunk in chunks]
    if share:
        order = sorted(range(len(chunks)), key=lambda i: contexts[i].astype(">i4").tobytes())
        yield from _Trie([queries[i] for i in order], [contexts[i] for i in order]).jobs()
    else:
        yield from (Job(q, c, 0) for q, c in zip(queries, contexts, strict=True) if len(c))


def _context(chunk: Chunk) -> Ints:
    """Slots that every token of the chunk attends to; a single token's own slot among them."""
    assert len(chunk.context) <= 1, "contexts of several segments are not planned yet"
    slots = chunk.context[0].slots if chunk.context else np.empty(0, dtype=np.int64)
    return np.concatenate((slots, chunk.writes)) if len(chunk.tokens) == 1 else slots


class _Trie:
    """Contexts in lexicographic order, and how long each one's common prefix with the last is."""

    def __init__(self, queries: list[Ints], contexts: list[Ints]) -> None:
        self.queries, self.contexts = queries, contexts
        self.common = [0] + [_common_prefix(a, b) for a, b in pairwise(contexts)]

    def jobs(self) -> Iterator[Job]:
        """One job per segment that is worth sharing, and one per chunk for what remains."""
        open_ranges = [(0, len(self.contexts), 0)]
        while open_ranges:
            low, high, depth = open_ranges.pop()
            if high - low == 1:
                if len(self.contexts[low]) > depth:
                    yield Job(self.queries[low], self.contexts[low][depth:], depth)
                continue
            shared = min(self.common[low + 1 : high])
            queries = np.concatenate(self.queries[low:high])
            if _worth_sharing(high - low, shared - depth, len(queries)):
                yield Job(queries, self.contexts[low][depth:shared], depth)
                depth = shared
            cuts = [i for i in range(low + 1, high) if self.common[i] == shared]
            open_ranges += [(a, b, depth) for a, b in pairwise([low, *cuts, high])]


def _worth_sharing(chunks: int, tokens: int, queries: int) -> bool:
    """Whether reading `tokens` once, not `chunks` times, outweighs merging one more partial."""
    return (chunks - 1) * tokens > queries


def _common_prefix(a: Ints, b: Ints) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length


def _similar(jobs: list[Job]) -> Iterator[list[Job]]:
    """Group jobs so that padding costs less than the kernel calls that it saves."""
    jobs.sort(key=lambda job: (job.causal, job.shape[0].bit_length(), job.shape[1]), reverse=True)
    group: list[Job] = []
    waste = 0
    for job in jobs:
        if group:
            queries = max(group[0].shape[0], job.shape[0])
            keys = max(group[0].shape[1], job.shape[1])
            waste += _cost(queries, keys) - _cost(*job.shape)
            alike = job.causal == group[0].causal
            if not alike or waste > CALL_OVERHEAD:
                yield group
                group, waste = [], 0
        group.append(job)
    if group:
        yield group


def _cost(queries: int, keys: int) -> int:
    return queries * keys + MOVE * (queries + keys)


def _pad(jobs: list[Job]) -> Bucket:
    shapes = np.array([job.shape for job in jobs])
    queries = np.zeros((len(jobs), shapes[:, 0].max()), dtype=np.int64)
    keys = np.zeros((len(jobs), shapes[:, 1].max()), dtype=np.int64)
    for row, job in enumerate(jobs):
        queries[row, : len(job.queries)] = job.queries
        keys[row, : len(job.keys)] = job.keys
    positions = np.array([job.position for job in jobs])
    return Bucket(queries, keys, shapes[:, 0], shapes[:, 1], positions, jobs[0].causal)
