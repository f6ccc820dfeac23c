"""Every token sees each of its keys once, however a step is planned for the kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import SPLIT_LEAST
from relquery.engine.executor import Chunk, Segment
from relquery.engine.requests.request import Draw
from relquery.model.attention_plan import NO_SHIFT, OWN_SHIFTS, ROWS, AttentionPlan, plan_step
from tests.model.oracle.strategies import Seen, batches, chunk_of, span_chunk, to_be_seen


def plan(chunks: Sequence[Chunk], share: bool = True, **options: Any) -> AttentionPlan:
    shape = {"heads": 4, "kv_heads": 2, "threads": 2} | options
    return plan_step(chunks, share=share, **shape)


def seen_in(planned: AttentionPlan) -> Iterator[Seen]:
    for first, _, begin, end in planned.tasks.tolist():
        for low, high, key, stop, shift in planned.visits[begin:end].tolist():
            for row in range(first + low, first + high):
                number = planned.shifts[row] if shift == OWN_SHIFTS else shift
                moved = 0 if number == NO_SHIFT else int(planned.shift_values[number])
                for slot, at in zip(
                    planned.slots[key:stop].tolist(),
                    planned.positions[key:stop].tolist(),
                    strict=True,
                ):
                    if at + moved <= planned.at[row]:
                        yield int(planned.tokens[row]), slot, at + moved


def read(planned: AttentionPlan) -> int:
    """Keys that the tasks read."""
    return int((planned.visits[:, 3] - planned.visits[:, 2]).sum())


def check_places(planned: AttentionPlan, tokens: int) -> None:
    """A token has one result, or its partial results fill the places where they are merged."""
    targets: dict[int, list[int]] = {token: [] for token in range(tokens)}
    for first, last, _, _ in planned.tasks.tolist():
        for row in range(first, last):
            targets[int(planned.tokens[row])].append(int(planned.targets[row]))
    merged = {token: list(range(begin, end)) for token, begin, end in planned.merged.tolist()}
    assert targets == {token: merged.get(token, [-1]) for token in range(tokens)}
    assert sum(map(len, merged.values())) == planned.places


@given(batches(), st.booleans(), st.sampled_from([(4, 4), (4, 1), (70, 1)]), st.integers(1, 9))
def test_each_token_sees_each_of_its_keys_exactly_once_at_its_position(
    chunks: list[Chunk], share: bool, heads: tuple[int, int], threads: int
) -> None:
    planned = plan(chunks, share, heads=heads[0], kv_heads=heads[1], threads=threads)
    assert Counter(seen_in(planned)) == Counter(to_be_seen(chunks))
    tokens = sum(len(chunk.tokens) for chunk in chunks)
    check_places(planned, tokens)
    assert planned.places == 0, "nothing is merged without spans and long contexts"
    rows = (planned.tasks[:, 1] - planned.tasks[:, 0]) * heads[0] // heads[1]
    assert (rows <= max(ROWS, heads[0] // heads[1])).all()


def test_what_is_shared_is_read_once_and_what_hardly_is_by_each() -> None:
    first, second = list(range(60)), list(range(60, 100))
    by_all = [chunk_of([*first, *second, 100 + number], 100) for number in range(8)]
    by_some = [chunk_of([*first, 200 + number], 60) for number in range(3)]
    by_some += [chunk_of([*first, *second, 300 + number], 100) for number in range(3)]
    hardly = [chunk_of([7, 8, 10 + number], 2) for number in range(4)]
    assert read(plan(by_all, threads=1)) == 100 + 8
    assert read(plan(by_all, share=False, threads=1)) == 8 * 101
    assert read(plan(by_some, threads=1)) == 60 + 40 + 6
    assert read(plan(hardly, threads=1)) == 4 * 3


@pytest.mark.parametrize("threads", [1, 8, 40])
def test_a_long_context_of_one_token_is_split_so_that_all_threads_have_work(threads: int) -> None:
    chunk = chunk_of(range(5000), 4999)
    planned = plan([chunk], threads=threads)
    assert Counter(seen_in(planned)) == Counter(to_be_seen([chunk]))
    check_places(planned, 1)
    wanted = min(threads, 5000 // SPLIT_LEAST)  # each of two heads is a task of its own
    assert wanted <= len(planned.tasks) <= wanted + 1


@pytest.mark.parametrize(("share", "reads"), [(True, 1), (False, 3)])
def test_a_span_is_read_once_for_all_who_see_it(share: bool, reads: int) -> None:
    span = range(100, 150)
    chunks = [span_chunk(shift, 5, span, i) for i, shift in enumerate((5, 5, 9))]
    planned = plan(chunks, share, threads=1)
    check_places(planned, 3)
    assert Counter(planned.slots[planned.visits[:, 2]].tolist())[100] == reads
    found = [each for each in seen_in(planned) if each[1] == 100]
    assert sorted(found) == [(0, 100, 5), (1, 100, 5), (2, 100, 9)]


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.lists(st.sampled_from([(100, 40), (100, 30), (200, 5)]))),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.integers(1, 5),
)
def test_any_spans_at_any_places_are_seen_once(
    prompts: list[tuple[int, list[tuple[int, int]]]], share: bool, threads: int
) -> None:
    chunks, expected, fresh, token = [], Counter[Seen](), 900, 0
    for own, spans in prompts:
        context, position = [Segment(np.arange(own), 0)], own
        keys = [(slot, slot) for slot in range(own)]
        for begin, length in spans:
            context.append(Segment(np.arange(begin, begin + length), 0, position))
            keys += [(begin + i, position + i) for i in range(length)]
            position += length
        writes = np.arange(fresh, fresh + own)
        chunks.append(Chunk(0, writes.astype(np.int32), position, tuple(context), writes, Draw()))
        for i in range(own):
            keys.append((fresh + i, position + i))
            expected.update((token, slot, at) for slot, at in keys)
            token += 1
        fresh += own
    planned = plan(chunks, share, threads=threads)
    assert Counter(seen_in(planned)) == expected
    check_places(planned, token)


@st.composite
def decode_steps(draw: st.DrawFn) -> list[list[Chunk]]:
    """Following steps of the same prompts, some of which share beginnings or what others write."""
    beginnings = [list(range(400)), list(range(500, 540))]
    count = draw(st.integers(1, 12))
    paths: list[list[int]] = []
    for number in range(count):
        if paths and draw(st.integers(0, 5)) == 0:  # one that reads what another writes
            paths.append(list(draw(st.sampled_from(paths))))
        else:
            beginning = draw(st.sampled_from(beginnings))
            paths.append(beginning[: draw(st.integers(0, len(beginning)))])
        paths[-1].append(1_000 + number)
    steps = []
    for step in range(draw(st.integers(1, 6))):
        steps.append([chunk_of(path, len(path) - 1) for path in paths])
        for number, path in enumerate(paths):
            path.append(2_000 + 100 * step + number)
    return steps


@given(decode_steps(), st.booleans(), st.integers(1, 9), st.integers(1, 4))
def test_a_plan_that_grows_sees_what_one_made_anew_sees(
    steps: list[list[Chunk]], share: bool, threads: int, room: int
) -> None:
    planned, left = plan(steps[0], share, threads=threads, room=room), room
    for chunks in steps:
        if chunks is not steps[0]:
            slots = np.concatenate([chunk.writes for chunk in chunks])
            before = list(seen_in(planned))
            if not planned.grow(slots):
                assert list(seen_in(planned)) == before
                written = {int(chunk.writes[0]) for chunk in steps[0]}
                read = {int(s) for chunk in steps[0] for c in chunk.context for s in c.slots}
                assert left == 0 or (share and written & read), "nothing prevents that it grows"
                return
            left -= 1
        assert Counter(seen_in(planned)) == Counter(to_be_seen(chunks))
        check_places(planned, len(chunks))
