"""What the KV cache has no room for is in host memory, and read from there (paper 004, §9)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.block_pool import BlockPool
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SCRATCH, Chunk
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.reuse import Draft
from relquery.errors import PromptTooLongError
from tests.engine.harness import BrokenError, Harness, Spec, assert_answered, for_each, numbered
from tests.engine.scenarios import Scenario, scenarios
from tests.engine.test_scored import PROMPTS

COST = LinearCost(1e-3, 0.01, 1e-3, 0.03)


SMALL: dict[str, Any] = {
    "cache_tokens": 16,
    "host_tokens": 80,
    "max_num_batched_tokens": 16,
    "max_input": 64,
}
"""Four blocks on the device, 20 on the host."""


def ask(harness: Harness, *prompt: int, then: int = 100) -> Request:
    """Serve one token after a prompt and one more token."""
    return harness.ask([*prompt, then], max_tokens=1)


def chunk_of(harness: Harness, request: Request) -> Chunk:
    (chunk,) = (c for step in harness.executor.steps for c in step if c.request == request.id)
    return chunk


@pytest.mark.parametrize("scenario", scenarios(__file__), ids=str)
def test_scenarios(scenario: Scenario) -> None:
    scenario.run(**SMALL)


def test_a_chunk_says_what_is_saved_where_and_what_is_loaded() -> None:
    harness = Harness(**SMALL)
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
    harness = Harness(**SMALL)
    ask(harness, *range(50))
    ask(harness, *range(200, 220))
    third = ask(harness, *range(50))
    loads = chunk_of(harness, third).loads
    assert loads is not None
    assert (loads.slots >= SCRATCH).tolist() == [False] * 16 + [True] * 32
    loaded = harness.executor.loaded
    assert ask(harness, *range(16)).cached == 16
    assert harness.executor.loaded == loaded


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


def test_an_interrupt_while_a_step_is_prepared_leaves_nothing_that_was_not_computed() -> None:
    harness = Harness(**SMALL | {"max_num_batched_tokens": 128})
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
    policy=st.sampled_from(POLICIES),
)
def test_every_chunk_reads_what_it_should_whatever_the_host_serves(
    asked: list[tuple[Spec, bool, int, int]],
    failing: int,
    budget: int,
    blocks: int,
    host: int,
    policy: PolicyName,
) -> None:
    harness = Harness(
        policy=make_policy(policy, Settings(COST)),
        cache_tokens=4 * blocks,
        host_tokens=4 * host,
        max_num_batched_tokens=budget,
        max_input=64,
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
