"""A batch's contexts cut into segments, so that what requests share is read once.

What a chunk attends to in its own chain is a path of slots, and the paths of a batch form a trie:
chunks whose paths begin alike share a segment. An independent span that stands elsewhere than
where it was computed is a segment by itself; all chunks that attend to it share it, wherever it
stands in each. Each distinct segment becomes one *job*, the queries of all chunks that see it
against its slots, and jobs of similar shape are padded into one *bucket*, which is one call of
the attention kernel. The partial results of a token are merged by their log-sum-exp (Hydragen;
cascade inference). Pure numpy: a plan is made once per step and serves all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from relquery.engine.executor import Chunk, Segment

Ints = npt.NDArray[np.int64]

CALL_OVERHEAD = 4_000
"""Query-key pairs whose computation takes about as long as one more kernel call."""
MOVE = 16
"""Query-key pairs whose computation takes about as long as gathering one token."""
MERGE = 32
"""Query-key pairs whose computation takes about as long as merging one more partial result."""


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Cached keys: their slots (k,), and the positions (k,) at which they were computed."""

    slots: Ints
    positions: Ints

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, part: slice) -> Context:
        return Context(self.slots[part], self.positions[part])


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Queries against one segment.

    queries: (q,) indices into the packed batch; at: (q,) their positions, counted from where those
    of the keys begin; shifts: (q,) what was subtracted for that, 0 within one chain.
    keys: the segment, its slots indices into the packed batch if `causal`: then the queries
    are its keys too.
    """

    queries: Ints
    at: Ints
    shifts: Ints
    keys: Context
    causal: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return len(self.queries), len(self.keys)

    @property
    def shifted(self) -> bool:
        """Whether some query sees the segment at another place than where it was computed."""
        return bool(self.shifts.any())


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Jobs padded to one shape with zeros: one kernel call.

    queries, at, shifts: (jobs, q). keys, positions: (jobs, k). query_counts, key_counts: (jobs,).
    causal: keys are indices into the packed batch and query i sees keys 0..i, so that padding on
    the right needs no mask. shifted: whether any shift is not 0. in_place: the slots of each job
    follow one another: the cache is read where it stands, by one kernel call a job.
    """

    queries: Ints
    at: Ints
    shifts: Ints
    keys: Ints
    positions: Ints
    query_counts: Ints
    key_counts: Ints
    causal: bool
    shifted: bool
    in_place: bool


def plan_buckets(
    chunks: Sequence[Chunk], share: bool = True, by_shift: bool = False
) -> list[Bucket]:
    """Buckets that together let every token of the batch attend to all that it should.

    chunks: in packed order, token i of the batch being token i of their concatenation. share:
    whether a segment that several chunks have in common becomes one job; else one per chunk.
    by_shift: whether only chunks that see a span at the same place share it.
    """
    parts = [part for job in _jobs(chunks, share, by_shift) for part in _split(job)]
    runs: dict[tuple[int, bool], list[Job]] = {}
    for job in parts:
        if _is_long_run(job):
            runs.setdefault((job.shape[0], job.shifted), []).append(job)
    rest = [job for job in parts if not _is_long_run(job)]
    return [_pad(jobs, in_place=True) for jobs in runs.values()] + [
        _pad(jobs) for jobs in _similar(rest)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Queries:
    """A chunk's tokens: indices into the packed batch, and their positions in the chain."""

    packed: Ints
    at: Ints

    def job(self, keys: Context, shift: int = 0, causal: bool = False) -> Job:
        shifts = np.full(len(self.at), shift)
        return Job(self.packed, self.at - shift, shifts, keys, causal)


def _jobs(chunks: Sequence[Chunk], share: bool, by_shift: bool) -> Iterator[Job]:
    starts = np.cumsum([0] + [len(chunk.tokens) for chunk in chunks])
    tokens = [
        _Queries(np.arange(start, stop), _range(chunk.position, stop - start))
        for chunk, (start, stop) in zip(chunks, pairwise(starts), strict=True)
    ]
    for own in tokens:
        if len(own.packed) > 1:
            yield own.job(Context(own.packed, own.at), causal=True)
    paths = [_path(chunk) for chunk in chunks]
    if share:
        order = sorted(range(len(chunks)), key=lambda i: paths[i].slots.astype(">i4").tobytes())
        yield from _Trie([tokens[i] for i in order], [paths[i] for i in order]).jobs()
    else:
        yield from (own.job(path) for own, path in zip(tokens, paths, strict=True) if len(path))
    yield from _span_jobs(chunks, tokens, share, by_shift)


def _span_jobs(
    chunks: Sequence[Chunk], tokens: list[_Queries], share: bool, by_shift: bool
) -> Iterator[Job]:
    """The spans that stand elsewhere than where they were computed, equal ones as one job."""
    shared: dict[tuple[bytes, int], list[Job]] = {}
    for chunk, own in zip(chunks, tokens, strict=True):
        for segment in chunk.context:
            if segment.shift:
                job = own.job(_context(segment), segment.shift)
                if share:
                    key = segment.slots.tobytes(), segment.shift if by_shift else 0
                    shared.setdefault(key, []).append(job)
                else:
                    yield job
    for jobs in shared.values():
        yield jobs[0] if len(jobs) == 1 else _join(jobs)


def _join(jobs: list[Job]) -> Job:
    """Jobs of one segment as one."""
    queries, at, shifts = (
        np.concatenate([getattr(job, name) for job in jobs]) for name in ("queries", "at", "shifts")
    )
    return Job(queries, at, shifts, jobs[0].keys)


def _path(chunk: Chunk) -> Context:
    """What every token of the chunk attends to in its chain; a single token's own slot with it."""
    own = [_context(segment) for segment in chunk.context if not segment.shift]
    if len(chunk.tokens) == 1:
        own.append(Context(chunk.writes, _range(chunk.position, 1)))
    if len(own) == 1:
        return own[0]
    slots = [context.slots for context in own] or [np.empty(0, dtype=np.int64)]
    follows = all(a.positions[-1] + 1 == b.positions[0] for a, b in pairwise(own))
    if not own or follows:
        joined = np.concatenate(slots)
        return Context(joined, _range(int(own[0].positions[0]) if own else 0, len(joined)))
    return Context(np.concatenate(slots), np.concatenate([context.positions for context in own]))


def _context(segment: Segment) -> Context:
    return Context(segment.slots, _range(segment.start, len(segment.slots)))


_COUNT = np.arange(1 << 12)


def _range(start: int, count: int) -> Ints:
    """start, start + 1, ...: a view, as a step needs many of them."""
    global _COUNT  # noqa: PLW0603
    if start + count > len(_COUNT):
        _COUNT = np.arange(2 * (start + count))
    return _COUNT[start : start + count]


class _Trie:
    """Paths in lexicographic order, and how long each one's common prefix with the last is."""

    def __init__(self, tokens: list[_Queries], paths: list[Context]) -> None:
        self.tokens, self.paths = tokens, paths
        self.common = [0] + [_common_prefix(a.slots, b.slots) for a, b in pairwise(paths)]

    def jobs(self) -> Iterator[Job]:
        """One job per segment that is worth sharing, and one per chunk for what remains."""
        open_ranges = [(0, len(self.paths), 0)]
        while open_ranges:
            low, high, depth = open_ranges.pop()
            if high - low == 1:
                if len(self.paths[low]) > depth:
                    yield self.tokens[low].job(self.paths[low][depth:])
                continue
            shared = min(self.common[low + 1 : high])
            queries = sum(len(own.packed) for own in self.tokens[low:high])
            if _worth_sharing(high - low, shared - depth, queries):
                segment = self.paths[low][depth:shared]
                yield _join([own.job(segment) for own in self.tokens[low:high]])
                depth = shared
            cuts = [i for i in range(low + 1, high) if self.common[i] == shared]
            open_ranges += [(a, b, depth) for a, b in pairwise([low, *cuts, high])]


def _split(job: Job) -> Iterator[Job]:
    """A job, or its long runs of slots by themselves, which need no copy, and what remains."""
    queries, keys = job.shape
    least = (CALL_OVERHEAD + MERGE * queries) // MOVE
    breaks = np.flatnonzero(np.diff(job.keys.slots) != 1) + 1
    if job.causal or keys <= least or len(breaks) == 0:
        yield job
        return
    rest = np.ones(keys, dtype=np.bool_)
    for a, b in pairwise([0, *breaks.tolist(), keys]):
        if b - a > least:
            rest[a:b] = False
            yield replace(job, keys=job.keys[a:b])
    if rest.any():
        yield replace(job, keys=Context(job.keys.slots[rest], job.keys.positions[rest]))


def _is_long_run(job: Job) -> bool:
    """Whether reading a job's keys where they stand saves more than its own kernel call costs."""
    slots = job.keys.slots
    if job.causal or len(slots) * MOVE <= CALL_OVERHEAD:
        return False
    return bool((slots[1:] - slots[:-1] == 1).all())


def _worth_sharing(chunks: int, tokens: int, queries: int) -> bool:
    """Whether reading `tokens` once, not `chunks` times, outweighs merging one more partial."""
    return (chunks - 1) * tokens > queries


def _common_prefix(a: Ints, b: Ints) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length


def _similar(jobs: list[Job]) -> Iterator[list[Job]]:
    """Group jobs so that padding costs less than the kernel calls that it saves."""
    jobs.sort(key=lambda job: (*_kind(job), job.shape[0].bit_length(), job.shape[1]), reverse=True)
    group: list[Job] = []
    waste = 0
    for job in jobs:
        if group:
            queries = max(group[0].shape[0], job.shape[0])
            keys = max(group[0].shape[1], job.shape[1])
            waste += _cost(queries, keys) - _cost(*job.shape)
            alike = _kind(job) == _kind(group[0])
            if not alike or waste > CALL_OVERHEAD:
                yield group
                group, waste = [], 0
        group.append(job)
    if group:
        yield group


def _cost(queries: int, keys: int) -> int:
    return queries * keys + MOVE * (queries + keys)


def _kind(job: Job) -> tuple[bool, bool]:
    return job.causal, job.shifted


def _pad(jobs: list[Job], in_place: bool = False) -> Bucket:
    shapes = np.array([job.shape for job in jobs])
    queries, at, shifts = (_zeros(jobs, shapes[:, 0]) for _ in range(3))
    keys, positions = (_zeros(jobs, shapes[:, 1]) for _ in range(2))
    for row, job in enumerate(jobs):
        q, k = job.shape
        queries[row, :q], at[row, :q], shifts[row, :q] = job.queries, job.at, job.shifts
        keys[row, :k], positions[row, :k] = job.keys.slots, job.keys.positions
    causal, shifted = _kind(jobs[0])
    counts = shapes[:, 0], shapes[:, 1]
    return Bucket(queries, at, shifts, keys, positions, *counts, causal, shifted, in_place)


def _zeros(jobs: list[Job], counts: Ints) -> Ints:
    return np.zeros((len(jobs), int(counts.max())), dtype=np.int64)
