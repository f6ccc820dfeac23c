"""A batch's contexts cut into segments, so that what requests share is read once.

What a chunk attends to in its own chain is a path of slots, and the paths of a batch form a trie:
chunks whose paths have the same beginning share a segment. An independent span at a different
position than it was computed at is a separate segment. All chunks that attend to it share it,
whatever its position in each. Each distinct segment becomes one *job*: the queries of all chunks
that see it against its slots. The partial results of a token are merged by their log-sum-exp
(Hydragen; cascade inference). Pure numpy: a plan is made once per step and used for all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.executor import SCRATCH, Chunk, Segment


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """Cached keys: their slots (k,), and the positions (k,) at which they were computed."""

    slots: Int64s
    positions: Int64s

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, part: slice) -> Context:
        return Context(self.slots[part], self.positions[part])


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Queries against one segment.

    queries: (q,) indices into the packed batch. at: (q,) their positions, counted from the origin
    of the keys' positions. shifts: (q,) what was subtracted for that, 0 within one chain.
    keys: the segment. If `causal`, its slots are indices into the packed batch, and the queries
    are its keys too.
    """

    queries: Int64s
    at: Int64s
    shifts: Int64s
    keys: Context
    causal: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return len(self.queries), len(self.keys)

    @property
    def scratch(self) -> bool:
        """Whether the keys are in scratch slots; either all slots of a job are, or none."""
        return bool(self.keys.slots[0] >= SCRATCH)

    @property
    def shifted(self) -> bool:
        """Whether some query sees the segment at a different position than it was computed at."""
        return bool(self.shifts.any())


@dataclass(frozen=True, slots=True, eq=False)
class _Queries:
    """A chunk's tokens: indices into the packed batch, and their positions in the chain."""

    packed: Int64s
    at: Int64s

    def job(self, keys: Context, shift: int = 0, causal: bool = False) -> Job:
        shifts = np.full(len(self.at), shift)
        return Job(self.packed, self.at - shift, shifts, keys, causal)


def plan_jobs(chunks: Sequence[Chunk], share: bool, by_shift: bool) -> Iterator[Job]:
    """Jobs that together let every token of the batch attend to everything it should.

    chunks: in packed order: token i of the batch is token i of their concatenation. share:
    whether a segment shared by several chunks becomes one job, instead of one per chunk.
    by_shift: whether only chunks that see a span at the same position share it.
    """
    chunks = _fuse(chunks)
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


def _fuse(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks, with each chunk that continues the previous one merged into it.

    So a span at the beginning of a prompt, and what follows it, cost no more than plain text.
    """
    fused: list[Chunk] = []
    for chunk in chunks:
        if fused and _goes_on(fused[-1], chunk):
            tokens = np.concatenate((fused[-1].tokens, chunk.tokens))
            writes = np.concatenate((fused[-1].writes, chunk.writes))
            fused[-1] = fused[-1]._replace(tokens=tokens, writes=writes)
        else:
            fused.append(chunk)
    return fused


def _goes_on(first: Chunk, chunk: Chunk) -> bool:
    """Whether a chunk attends exactly to the first chunk and everything that one attends to."""
    if chunk.position != first.position + len(first.tokens):
        return False
    if chunk.context_tokens != first.context_tokens + len(first.tokens):
        return False
    seen = [*first.context, Segment(first.writes, first.position)]
    slots, positions, shifts = _flat(seen)
    return all(map(np.array_equal, (slots, positions, shifts), _flat(chunk.context)))


def _flat(segments: Sequence[Segment]) -> tuple[Int64s, Int64s, Int64s]:
    """(slots, positions, shifts) of all tokens of some segments."""
    sizes = [len(segment.slots) for segment in segments]
    return (
        np.concatenate([segment.slots for segment in segments]),
        np.concatenate([_range(segment.start, len(segment.slots)) for segment in segments]),
        np.repeat([segment.shift for segment in segments], sizes),
    )


def _span_jobs(
    chunks: Sequence[Chunk], tokens: list[_Queries], share: bool, by_shift: bool
) -> Iterator[Job]:
    """The spans at other positions than they were computed at, equal spans as one job."""
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
    """What every token of the chunk attends to in its chain; for a single token, itself too."""
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


def _range(start: int, count: int) -> Int64s:
    """start, start + 1, ...: a view, because each slice of a long prompt needs nearly all of it."""
    return _numbers(int(start + count).bit_length())[start : start + count]


@cache
def _numbers(bits: int) -> Int64s:
    return np.arange(1 << bits)


class _Trie:
    """Paths in lexicographic order, each with the length of its common prefix with the previous."""

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


def _worth_sharing(chunks: int, tokens: int, queries: int) -> bool:
    """Whether reading `tokens` once instead of `chunks` times is worth one more merge."""
    return (chunks - 1) * tokens > queries


def _common_prefix(a: Int64s, b: Int64s) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length
