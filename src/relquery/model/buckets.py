"""A batch's jobs in buckets: each is one kernel call, or reads the cache where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from relquery.engine.executor import Chunk
from relquery.model.segments import Context, Ints, Job, plan_jobs

CALL_OVERHEAD = 4_000
"""Query-key pairs whose computation takes about as long as one more kernel call."""
MOVE = 16
"""Query-key pairs whose computation takes about as long as gathering one token."""
MERGE = 32
"""Query-key pairs whose computation takes about as long as merging one more partial result."""


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
    """The jobs of a batch in few kernel calls; for the arguments see plan_jobs."""
    parts = [part for job in plan_jobs(chunks, share, by_shift) for part in _split(job)]
    runs: dict[tuple[int, bool], list[Job]] = {}
    for job in parts:
        if _is_long_run(job):
            runs.setdefault((job.shape[0], job.shifted), []).append(job)
    rest = [job for job in parts if not _is_long_run(job)]
    return [_pad(jobs, in_place=True) for jobs in runs.values()] + [
        _pad(jobs) for jobs in _similar(rest)
    ]


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
