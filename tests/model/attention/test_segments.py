"""Every token sees each of its keys once, however the batch is cut into jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.request.request import Draw
from relquery.model.attention.buckets import Bucket, plan_buckets
from tests.model.oracle.strategies import Seen, batches, chunk_of, to_be_seen


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


@settings(max_examples=200)
@given(batches(), st.booleans())
def test_each_token_sees_each_of_its_keys_exactly_once_at_its_position(
    chunks: list[Chunk], share: bool
) -> None:
    seen = Counter(seen_by_buckets(chunks, plan_buckets(chunks, share)))
    assert seen == Counter(to_be_seen(chunks))


@given(batches())
def test_sharing_never_reads_more_keys(chunks: list[Chunk]) -> None:
    assert gathered(plan_buckets(chunks, True)) <= gathered(plan_buckets(chunks, False))


def test_a_prefix_that_all_share_is_read_once() -> None:
    prefix = list(range(100))
    chunks = [chunk_of([*prefix, 100 + number], 100) for number in range(8)]
    assert gathered(plan_buckets(chunks, True)) == 100 + 8
    assert gathered(plan_buckets(chunks, False)) == 8 * 101


def test_a_prefix_within_a_prefix_is_read_once_per_group() -> None:
    chunks = []
    for group in range(3):
        common = [*range(60), *range(100 + 40 * group, 140 + 40 * group)]
        chunks += [chunk_of([*common, 300 + 10 * group + n], 100) for n in range(4)]
    assert gathered(plan_buckets(chunks, True)) == 60 + 3 * 40 + 12


def test_a_context_that_is_a_prefix_of_another_shares_it_whole() -> None:
    chunks = [chunk_of([*range(50), 200], 50), chunk_of([*range(90), 201], 90)]
    assert gathered(plan_buckets(chunks, True)) == 50 + 1 + 41


def test_too_short_a_prefix_is_not_worth_another_partial_result() -> None:
    chunks = [chunk_of([0, *range(10 * n, 10 * n + 9)], 9) for n in range(1, 3)]
    assert gathered(plan_buckets(chunks, True)) == gathered(plan_buckets(chunks, False))


def test_equal_jobs_become_one_kernel_call() -> None:
    chunks = [chunk_of(range(40 * n, 40 * n + 40), 39) for n in range(8)]
    buckets = plan_buckets(chunks, True)
    assert [bucket.keys.shape for bucket in buckets] == [(8, 40)]


def test_jobs_of_very_different_size_are_not_padded_to_one() -> None:
    chunks = [chunk_of(range(5), 4), chunk_of(range(10, 4000), 3990 - 1)]
    shapes = {bucket.positions.shape for bucket in plan_buckets(chunks, True)}
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


def span_chunk(shift: int, own: int, slots: range, token: int) -> Chunk:
    """One new token after `own` tokens of its own and a span that stands at `shift`."""
    context = (Segment(np.arange(own), 0), Segment(np.array(slots), 0, shift))
    write = np.array([300 + token])
    return Chunk(token, write.astype(np.int32), own + len(slots), context, write, Draw())


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
