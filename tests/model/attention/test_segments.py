"""Every token sees each of its keys once, however the batch is cut into jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.executor import SCRATCH, Chunk
from relquery.model.attention.buckets import Bucket, plan_buckets
from tests.model.oracle.strategies import Seen, batches, chunk_of, span_chunk, to_be_seen


def seen_by_buckets(chunks: Sequence[Chunk], buckets: Sequence[Bucket]) -> Iterator[Seen]:
    writes = np.concatenate([chunk.writes for chunk in chunks])
    for bucket in buckets:
        for job in range(len(bucket.queries)):
            queries = bucket.queries[job, : bucket.query_counts[job]].tolist()
            keys = slots_of(bucket, job)
            positions = bucket.positions[job].tolist()
            for row, query in enumerate(queries):
                shift = int(bucket.shifts[job, row])
                for i, key in enumerate(keys[: row + 1] if bucket.causal else keys):
                    slot = int(writes[key]) if bucket.causal else key
                    yield query, slot, shift + positions[i]


def slots_of(bucket: Bucket, job: int) -> list[int]:
    count, offset = int(bucket.key_counts[job]), SCRATCH * bucket.scratch
    if bucket.in_place:
        return list(range(offset + bucket.keys[job, 0], offset + bucket.keys[job, 0] + count))
    return [offset + int(key) for key in bucket.keys[job, :count]]


def gathered(buckets: Sequence[Bucket]) -> int:
    """Cached keys that are read."""
    return sum(int(bucket.key_counts.sum()) for bucket in buckets if not bucket.causal)


@given(batches(), st.booleans())
def test_each_token_sees_each_of_its_keys_exactly_once_at_its_position(
    chunks: list[Chunk], share: bool
) -> None:
    seen = Counter(seen_by_buckets(chunks, plan_buckets(chunks, share)))
    assert seen == Counter(to_be_seen(chunks))


@given(batches())
def test_sharing_never_reads_more_keys(chunks: list[Chunk]) -> None:
    assert gathered(plan_buckets(chunks, True)) <= gathered(plan_buckets(chunks, False))


def test_a_prefix_is_read_once_per_group_where_it_is_worth_another_partial_result() -> None:
    prefix = list(range(100))
    by_all = [chunk_of([*prefix, 100 + number], 100) for number in range(8)]
    nested = []
    for group in range(3):
        common = [*range(60), *range(100 + 40 * group, 140 + 40 * group)]
        nested += [chunk_of([*common, 300 + 10 * group + n], 100) for n in range(4)]
    whole = [chunk_of([*range(50), 200], 50), chunk_of([*range(90), 201], 90)]
    short = [chunk_of([0, *range(10 * n, 10 * n + 9)], 9) for n in range(1, 3)]
    for chunks, shared, alone in (
        (by_all, 100 + 8, 8 * 101),
        (nested, 60 + 3 * 40 + 12, 12 * 101),
        (whole, 50 + 1 + 41, 51 + 91),
        (short, 2 * 10, 2 * 10),
    ):
        assert gathered(plan_buckets(chunks, True)) == shared
        assert gathered(plan_buckets(chunks, False)) == alone


def test_equal_jobs_become_one_kernel_call_and_very_different_ones_do_not() -> None:
    equal = [chunk_of(range(40 * n, 40 * n + 40), 39) for n in range(8)]
    assert [bucket.keys.shape for bucket in plan_buckets(equal, True)] == [(8, 40)]
    other = [chunk_of(range(5), 4), chunk_of(range(10, 4000), 3990 - 1)]
    shapes = {bucket.positions.shape for bucket in plan_buckets(other, True)}
    assert shapes == {(1, 5), (1, 3990)}


def test_a_fresh_prompt_attends_to_itself_without_reading_the_cache() -> None:
    buckets = plan_buckets([chunk_of(range(9), 0)], True)
    assert [bucket.causal for bucket in buckets] == [True]


def test_what_follows_a_whole_chunk_of_the_same_step_is_one_with_it() -> None:
    first, both = chunk_of(range(9), 3), range(20)
    buckets = plan_buckets([first, chunk_of(both, 9), chunk_of([*both, 30], 20)], True)
    assert {(b.causal, b.keys.shape) for b in buckets} == {(False, (1, 3)), (True, (1, 18))}
    apart = [first, chunk_of(range(19), 8), chunk_of([*range(3, 12), 40], 9)]
    assert len(plan_buckets([apart[0], apart[1]], True)) > 1
    assert len(plan_buckets([apart[0], apart[2]], True)) > 1


@pytest.mark.parametrize(("share", "by_shift", "reads"), [(1, 0, 1), (1, 1, 2), (0, 0, 3)])
def test_a_span_is_read_once_for_all_who_see_it(share: bool, by_shift: bool, reads: int) -> None:
    span = range(100, 150)
    chunks = [span_chunk(shift, 5, span, i) for i, shift in enumerate((5, 5, 9))]
    buckets = plan_buckets(chunks, bool(share), bool(by_shift))
    shifted = [bucket for bucket in buckets if bucket.shifted]
    assert sum(len(bucket.keys) for bucket in shifted) == reads
    seen = [(q, slot, at) for q, slot, at in seen_by_buckets(chunks, shifted) if slot == 100]
    assert sorted(seen) == [(0, 100, 5), (1, 100, 5), (2, 100, 9)]


def test_the_cache_and_the_steps_own_slots_are_read_apart() -> None:
    own = [SCRATCH + number for number in range(4)]
    chunks = [chunk_of([7, 8, *own, 9, 10], 6), chunk_of([7, 8, *own[:2], 11], 4)]
    buckets = plan_buckets(chunks, True)
    assert {bucket.scratch for bucket in buckets} == {False, True}
    assert Counter(seen_by_buckets(chunks, buckets)) == Counter(to_be_seen(chunks))
