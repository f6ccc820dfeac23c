"""What the KV cache has no room for is in host memory, and read from there (paper 004, §9)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import POLICIES, RELOCATIONS, EngineConfig, PolicyName, Relocation
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SCRATCH, Chunk
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.errors import PromptTooLongError
from tests.engine.harness import BrokenError, Harness, Spec, assert_answered, for_each, numbered
from tests.engine.test_scored import PROMPTS, assert_scored, submit

COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)


def small(**limits: Any) -> Harness:
    """Four blocks on the device, 20 on the host."""
    given = {"cache_tokens": 16, "host_tokens": 80, "max_num_batched_tokens": 16, "max_input": 64}
    return Harness(**given | limits)


def ask(harness: Harness, *prompt: int, then: int = 100) -> Request:
    """Serve one token after a prompt and one more token."""
    return harness.ask([*prompt, then], max_tokens=1)


def ask_together(harness: Harness, count: int, tokens: int) -> list[Request]:
    """Prompts that differ in their last token."""
    requests = [harness.submit([*range(tokens), 100 + i], max_tokens=1) for i in range(count)]
    harness.run()
    return requests


def chunk_of(harness: Harness, request: Request) -> Chunk:
    (chunk,) = (c for step in harness.executor.steps for c in step if c.request == request.id)
    return chunk


ALONE: dict[str, tuple[dict[str, Any], list[range], list[int], int, int]] = {
    # Limits, prompts that come one after the other, hits of each, tokens computed, and loaded.
    "what the cache dropped is loaded": ({}, [range(50)] * 2, [0, 48], 51 + 3, 48 - 16),
    "what follows loaded blocks is saved too": (
        {},
        [range(24), range(40), range(50)],
        [0, 24, 40],
        25 + 17 + 11,
        8 + 24,
    ),
    "without host memory": ({"host_tokens": 0}, [range(50)] * 2, [0, 16], 51 + 35, 0),
    "without prefix caching": ({"prefix_caching": False}, [range(50)] * 2, [0, 0], 102, 0),
    "as far as the host has room": ({"host_tokens": 32}, [range(50)] * 2, [0, 32], 51 + 19, 16),
    # 6 blocks, 6 more for 2 of which others go: the least recently used, a prompt's end first.
    "the host lets go": (
        {"cache_tokens": 4, "host_tokens": 40},
        [range(24), range(50, 74), range(24), range(80, 104), range(24)],
        [0, 0, 16, 0, 16],
        25 + 25 + 9 + 25 + 9,
        16 + 16,
    ),
    # 12 blocks, 1, and 3 more, for which only one has room, and one is let go.
    "what precedes new blocks is not evicted for them": (
        {"host_tokens": 56},
        [range(50), range(200, 206), range(60), range(60)],
        [0, 0, 48, 56],
        51 + 7 + 13 + 5,
        (48 - 12) + (56 - 16),
    ),
}


@pytest.mark.parametrize("case", ALONE.values(), ids=ALONE)
def test_only_what_neither_has_is_computed(case: Any) -> None:
    limits, prompts, cached, computed, loaded = case
    harness = small(**limits)
    requests = [ask(harness, *prompt) for prompt in prompts]
    assert [request.cached for request in requests] == cached
    assert (harness.executor.computed, harness.executor.loaded) == (computed, loaded)
    has_host = harness.config.host_tokens > 0 and harness.config.prefix_caching
    saves = [c.saves for step in harness.executor.steps for c in step]
    assert any(each is not None for each in saves) == has_host
    assert (harness.engine.host.evict(100) > 0) == has_host


def test_what_the_host_has_evicted_is_computed_again() -> None:
    harness = small()
    ask(harness, *range(50))
    harness.engine.host.evict(100)
    assert ask(harness, *range(50)).cached == 16
    assert harness.executor.loaded == 0


@for_each(
    "limits, count, steps, loaded",
    [
        # What there is room for is loaded into the cache, once for all; otherwise each loads.
        ({"cache_tokens": 48, "max_num_batched_tokens": 128}, 3, [3], 40),
        ({"max_num_batched_tokens": 128}, 2, [2], 16 + 24 + 24),
        # What is loaded takes room in a step: 24 tokens or more, and 1 computed.
        ({"max_num_batched_tokens": 64}, 3, [1, 2], 16 + 3 * 24),
    ],
)
def test_requests_of_a_step_share_what_one_of_them_loads_into_the_cache(
    limits: dict[str, Any], count: int, steps: list[int], loaded: int
) -> None:
    harness = small(**limits)
    ask(harness, *range(40))
    harness.engine.pool.evict(100)
    requests = ask_together(harness, count, 40)
    assert [request.cached for request in requests] == [40] * count
    assert [len(step) for step in harness.executor.steps] == [1, *steps]
    assert (harness.executor.computed, harness.executor.loaded) == (41 + count, loaded)


def test_a_block_is_saved_once() -> None:
    harness = small(max_num_batched_tokens=128)
    requests = [*ask_together(harness, 2, 40), ask(harness, *range(54))]
    saved = [chunk_of(harness, request).saves for request in requests]
    assert [each if each is None else int((each >= 0).sum()) for each in saved] == [40, None, 12]


def test_a_chunk_says_what_is_saved_where_and_what_is_loaded() -> None:
    harness = small()
    first, second = (ask(harness, *range(30), then=100 + i) for i in range(2))
    computed, read = chunk_of(harness, first), chunk_of(harness, second)
    assert computed.saves is not None
    assert computed.loads is None
    assert (computed.saves >= 0).tolist() == [True] * 28 + [False] * 3
    assert read.loads is not None
    assert read.saves is None
    assert read.loads.host.tolist() == computed.saves[16:28].tolist()
    (context,) = read.context
    assert context.slots[16:].tolist() == read.loads.slots.tolist()
    assert (read.loads.slots >= SCRATCH).all()


def test_what_the_cache_has_room_for_is_loaded_into_it() -> None:
    harness = small()
    ask(harness, *range(50))
    ask(harness, *range(200, 220))
    third = ask(harness, *range(50))
    loads = chunk_of(harness, third).loads
    assert loads is not None
    assert (loads.slots >= SCRATCH).tolist() == [False] * 16 + [True] * 32
    loaded = harness.executor.loaded
    assert ask(harness, *range(16)).cached == 16
    assert harness.executor.loaded == loaded


def test_what_only_the_cache_has_does_not_keep_the_rest_from_the_host() -> None:
    harness = small()
    harness.ask(range(13), max_tokens=2)
    ask(harness, *range(8), *range(20, 50))
    assert ask(harness, *range(8), *range(20, 50)).cached == 36


def test_of_a_prompt_that_is_partly_loaded_the_host_lets_go_of_the_end_first() -> None:
    harness = small(host_tokens=56)
    ask(harness, *range(40))  # 10 blocks
    ask(harness, *range(50))  # 2 more; 4 hits, 6 loaded
    ask(harness, *range(200, 220))  # 5, for 3 of which the last ones go
    harness.engine.pool.evict(100)
    assert ask(harness, *range(50)).cached == 36


def test_labels_are_weighed_after_what_was_loaded() -> None:
    harness = small()
    requests = []
    for tail in range(3):
        requests.append(submit(harness, [*range(45), tail]))
        harness.run()
    assert [request.cached for request in requests] == [0, 44, 44]
    assert_scored(*requests)


def test_requests_that_decode_take_no_part() -> None:
    harness = small()
    for _ in range(2):
        harness.ask(range(13), max_tokens=2)
    assert harness.engine.host.evict(100) == harness.executor.loaded == 0


def test_spans_are_saved_and_loaded_at_any_place_in_any_order() -> None:
    harness = small(cache_tokens=8)
    one, two = tuple(range(10)), tuple(range(20, 29))
    for prompt in ((one, two, 100), (50, 51, two, 52, one, 101), (one, 102)):
        harness.ask(prompt, max_tokens=1)
        harness.engine.pool.evict(100)
    assert [request.cached for request in harness.finished] == [0, 19, 10]
    assert harness.executor.computed == 20 + 4 + 1
    assert harness.executor.loaded == 19 + 10
    assert_answered(*harness.finished)


def test_a_span_is_kept_where_there_is_room_and_what_is_not_is_loaded() -> None:
    harness = small(cache_tokens=12)
    one, two = tuple(range(10)), tuple(range(20, 29))  # three blocks each
    for last in (100, 101):
        harness.ask((one, two, last), max_tokens=1)
    assert harness.finished[1].cached == 19
    assert harness.executor.loaded == 9
    assert harness.executor.computed == 20 + 1


def test_what_was_to_be_loaded_of_a_span_by_a_failed_step_is_not_found() -> None:
    harness = small(cache_tokens=24)
    prompt = (tuple(range(10)), 100)
    harness.ask(prompt, max_tokens=1)
    harness.engine.pool.evict(100)
    harness.submit(prompt, max_tokens=1)
    harness.fail()
    assert harness.engine.pool.evict(100) == 0
    harness.run()
    assert_answered(harness.finished[1])


def test_spans_that_are_moved_to_their_place_are_computed_there() -> None:
    harness = small(relocation="cidra", cache_tokens=24)
    for _ in range(2):
        harness.ask((7, tuple(range(10)), 100), max_tokens=1)
        harness.engine.pool.evict(100)
    assert harness.engine.host.evict(100) == harness.executor.loaded == 0


@for_each("tokens, loaded", [(11, 0), (36, 0), (37, 9)])
def test_only_what_a_step_could_compute_whole_is_loaded(tokens: int, loaded: int) -> None:
    request = Request(0, numbered(37), 1)
    host = BlockPool(9)
    for key, block in zip(request.keys(0, 9, 4), host.allocate(9) or [], strict=True):
        host.publish(key, block)
    config = EngineConfig(block_size=4, max_num_batched_tokens=tokens)
    draft = Draft(State(0.0, (), (), config, BlockPool(16), host=host))
    assert draft.admit(request)
    (work,) = draft.plan().work
    assert (sum(work.loaded), work.tokens) == (loaded, min(tokens, 37 - 4 * loaded))


# ---- failure


@for_each("failure", [BrokenError(), KeyboardInterrupt()])
def test_what_a_failed_step_was_to_save_is_not_found(failure: BaseException) -> None:
    harness = small()
    first = harness.submit(range(50), 1)
    harness.fail(failure)
    assert harness.engine.host.evict(100) == 0
    harness.engine.cancel(first)
    second = ask(harness, *range(50))
    assert second.cached == 0
    assert_answered(second)


def test_what_was_saved_before_a_failed_step_is_loaded_after_it() -> None:
    harness = small()
    ask(harness, *range(40))
    second = harness.submit(range(50), 1)
    harness.fail()
    harness.run()
    assert second.cached == 40
    assert harness.executor.steps[-1][0].loads is not None
    assert ask(harness, *range(50)).cached == 48


def test_what_a_failed_step_was_to_load_into_the_cache_is_loaded_again() -> None:
    harness = small()
    ask(harness, *range(40))
    harness.engine.pool.evict(100)
    harness.submit(range(50), 1)
    harness.fail()
    assert harness.engine.pool.evict(100) == 0
    before = harness.executor.loaded
    harness.run()
    assert harness.executor.loaded == before + 40


def test_an_interrupt_while_a_step_is_prepared_leaves_nothing_that_was_not_computed() -> None:
    harness = small(max_num_batched_tokens=128)
    ask(harness, *range(40))
    requests = [harness.submit(each, 1) for each in (range(50), range(200, 230))]
    holdings: Any = harness.engine._holdings
    chunks = holdings.chunks

    def interrupted(work: Any) -> Any:
        if work.request is requests[1]:
            raise KeyboardInterrupt
        return chunks(work)

    holdings.chunks = interrupted
    with pytest.raises(KeyboardInterrupt):
        harness.step()
    holdings.chunks = chunks
    harness.check()
    assert list(harness.engine.waiting) == requests
    harness.run()
    assert_answered(*requests)


# ---- anything

ALIKE = st.tuples(st.integers(9, 45), st.integers(0, 3)).map(lambda n: (*range(n[0]), 100 + n[1]))
DECODES = st.sampled_from([False, False, False, True])
SPANS = st.lists(st.sampled_from([tuple(range(n)) for n in (1, 6, 8, 11)]), max_size=3).map(
    lambda spans: (7, *spans, 8, 9)
)
ASKED = st.tuples(ALIKE | ALIKE | SPANS | PROMPTS, DECODES, st.integers(0, 2), st.integers(0, 9))
"""A prompt, whether it decodes, steps after it, and blocks that the cache then loses."""


@given(
    asked=st.lists(ASKED, min_size=2, max_size=8),
    failing=st.integers(0, 12),
    budget=st.integers(2, 40),
    blocks=st.integers(1, 9) | st.integers(1, 40),
    host=st.integers(0, 9) | st.integers(20, 30),
    relocation=st.sampled_from(RELOCATIONS),
    policy=st.sampled_from(POLICIES),
)
def test_every_chunk_reads_what_it_should_whatever_the_host_serves(
    asked: list[tuple[Spec, bool, int, int]],
    failing: int,
    budget: int,
    blocks: int,
    host: int,
    relocation: Relocation,
    policy: PolicyName,
) -> None:
    harness = Harness(
        policy=make_policy(policy, Settings(COST)),
        cache_tokens=4 * blocks,
        host_tokens=4 * host,
        max_num_batched_tokens=budget,
        max_input=64,
        relocation=relocation,
    )
    done = 0
    for prompt, decodes, steps, lost in asked:
        with suppress(PromptTooLongError):
            harness.submit(prompt, 5 if decodes else 1)
        for _ in range(steps):
            if harness.engine.waiting or harness.engine.running:
                done += 1
                if done == failing:
                    harness.executor.failure = BrokenError()
                with suppress(BrokenError):
                    harness.step()
                harness.check()
        harness.engine.pool.evict(lost)
    harness.run()
    assert_answered(*harness.executor.requests.values())
