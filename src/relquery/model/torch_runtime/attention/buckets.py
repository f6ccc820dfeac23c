"""A batch's jobs in buckets: each is one kernel call, or reads the cache in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.executor import SCRATCH, Chunk
from relquery.model.torch_runtime.attention.segments import Context, Job, plan_jobs

CALL_OVERHEAD = 4_000
"""Query-key pairs whose computation takes about as long as one more kernel call."""
MOVE = 16
"""Query-key pairs whose computation takes about as long as gathering one token."""
MERGE = 32
"""Query-key pairs whose computation takes about as long as merging one more partial result."""


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Jobs padded to one shape with zeros: one kernel call.

    queries, at, shifts: (jobs, q). keys, positions: (jobs, k); for keys in place only the first is
    given. query_counts, key_counts: (jobs,).
    causal: keys are indices into the packed batch and query i sees keys 0..i, so padding on
    the right needs no mask. shifted: whether any shift is not 0. scratch: whether the keys are in
    scratch slots; they are then counted from SCRATCH. in_place: the slots of each job are
    contiguous and are read in place, with one kernel call per job.
    """

    queries: Int64s
    at: Int64s
    shifts: Int64s
    keys: Int64s
    positions: Int64s
    query_counts: Int64s
    key_counts: Int64s
    causal: bool
    shifted: bool
    scratch: bool
    in_place: bool


def plan_buckets(
    chunks: Sequence[Chunk], share: bool = True, by_shift: bool = False
) -> list[Bucket]:
    """Group a batch's jobs into few kernel calls. For the arguments see plan_jobs."""
    jobs = (part for job in plan_jobs(chunks, share, by_shift) for part in _by_store(job))
    parts = [part for job in jobs for part in _split(job)]
    runs: dict[tuple[int, bool, bool], list[Job]] = {}
    for job in parts:
        if _is_long_run(job):
            runs.setdefault((job.shape[0], job.shifted, job.scratch), []).append(job)
    rest = [job for job in parts if not _is_long_run(job)]
    return [_pad(jobs, in_place=True) for jobs in runs.values()] + [
        _pad(jobs) for jobs in _similar(rest)
    ]


def _by_store(job: Job) -> Iterator[Job]:
    """A job, or one job for the cache's keys and one for keys in the step's scratch slots."""
    own = job.keys.slots >= SCRATCH
    if own.all() or not own.any():
        yield job
        return
    (cuts,) = np.nonzero(own[1:] != own[:-1])
    if len(cuts) == 1:
        yield replace(job, keys=job.keys[: cuts[0] + 1])
        yield replace(job, keys=job.keys[cuts[0] + 1 :])
        return
    for part in (own, ~own):
        yield replace(job, keys=Context(job.keys.slots[part], job.keys.positions[part]))


def _split(job: Job) -> Iterator[Job]:
    """A job, or separate jobs for its long runs of slots, which need no copy, and for the rest."""
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
    """Whether reading a job's keys in place saves more than its separate kernel call costs."""
    slots = job.keys.slots
    if job.causal or len(slots) * MOVE <= CALL_OVERHEAD:
        return False
    return bool((slots[1:] - slots[:-1] == 1).all())


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


def _kind(job: Job) -> tuple[bool, bool, bool]:
    return job.causal, job.shifted, job.scratch


def _pad(jobs: list[Job], in_place: bool = False) -> Bucket:
    causal, shifted, scratch = _kind(jobs[0])
    offset = SCRATCH if scratch else 0
    shown = 1 if in_place else None
    return Bucket(
        queries=_padded([job.queries for job in jobs]),
        at=_padded([job.at for job in jobs]),
        shifts=_padded([job.shifts for job in jobs]),
        keys=_padded([job.keys.slots[:shown] - offset for job in jobs]),
        positions=_padded([job.keys.positions for job in jobs]),
        query_counts=np.array([job.shape[0] for job in jobs]),
        key_counts=np.array([job.shape[1] for job in jobs]),
        causal=causal,
        shifted=shifted,
        scratch=scratch,
        in_place=in_place,
    )


def _padded(rows: list[Int64s]) -> Int64s:
    """(rows, longest). A single row is not copied, as each slice of a long prompt reads it all."""
    if len(rows) == 1:
        return rows[0][None]
    padded = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
