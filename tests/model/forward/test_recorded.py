"""Recorded steps compute what the network computes, whatever steps were before."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch

from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward import recorded
from relquery.model.forward.llama import LlamaForward
from relquery.model.kernels.program import Program, can_run
from tests.engine.harness import spied
from tests.model.forward.decoding import Decoding
from tests.model.oracle.architectures import networks_of, prepared, quick_of, varied

NETWORKS = networks_of("recorded")
FEW_AND_ALL = quick_of(NETWORKS, "llama")
CPU = torch.device("cpu")
MOST = recorded.MOST

pytestmark = pytest.mark.skipif(not can_run(), reason="torch has no OpenMP here")


def ready(name: str) -> tuple[Any, LlamaForward]:
    forward = prepared(varied(NETWORKS[name])).forward
    assert isinstance(forward, LlamaForward)
    return varied(NETWORKS[name]), forward


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one at each run of a recorded step."""
    return spied(monkeypatch, Program, "run")


Steps = list[tuple[Any, ...]]
WANTED = [([30], 1), ([2], 1), ([9, 1, 5], 2), ([1, 1, 1], 2), ([7], 6), ([20, 20, 20, 4], 63)]
ALONE = [([30], 1, 0), ([2, 9], 2, 1), ([1, 1, 1], 3, 0), ([1, 1, 1], 3, 2), ([7] * 8, 9, 5)]
STEPS: dict[str, tuple[int, int, Steps]] = {
    # Prompts, a seed, and steps: see Decoding. Steps of different kinds are recorded apart.
    "of any size": (MOST, 1, [("step", each) for each in (1, 1, 7, MOST, 3, 33, 2)]),
    "logits of some": (8, 6, [s for each in WANTED for s in (("grow", *each), ("step", 3))]),
    "states of the step": (8, 8, [s for each in ALONE for s in (("ask", *each), ("step", 8))]),
}


@FEW_AND_ALL
@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
@torch.inference_mode()
def test_steps_follow_one_another(name: str, case: tuple[int, int, Steps], runs: list[Any]) -> None:
    prompts, seed, steps = case
    decoding = Decoding(*ready(name), prompts=prompts, seed=seed)
    before = len(runs)
    for kind, *given in steps:
        getattr(decoding, kind)(*given)
    assert len(runs) == before + len(steps)


@FEW_AND_ALL
@torch.inference_mode()
def test_a_batch_may_follow_itself(name: str, runs: list[Any]) -> None:
    decoding = Decoding(*ready(name), prompts=5, seed=10)
    first = second = None
    before = len(runs)
    for _ in range(6):
        first = decoding.follow(first, [0, 1])
        first = decoding.follow(first, [0, 1])
        second = decoding.follow(second, [2, 3, 4])
    assert len(runs) == before + 18


@pytest.mark.long
@torch.inference_mode()
def test_a_batch_may_follow_itself_past_the_known_angles() -> None:
    decoding = Decoding(*ready("llama"), prompts=2, seed=11)
    forward = decoding.forward
    assert isinstance(forward, LlamaForward)
    batch = decoding.follow(None, [0, 1])
    known = max(map(len, decoding.ids)) + 2
    tables = [torch.full_like(table, torch.nan) for table in forward._known_angles]
    for table, whole in zip(tables, forward._known_angles, strict=True):
        table[:known] = whole[:known]
    cosines, sines = tables
    forward._known_angles = cosines[:known], sines[:known]
    for _ in range(5):
        batch = decoding.follow(batch, [0, 1])
    assert len(forward._known_angles[0]) > known


def masked(network: Any, ids: Any, at: Any, seen: Any) -> torch.Tensor:
    """The network's own logits of tokens at these positions that see [query, key] one another."""
    mask = torch.zeros(seen.shape).masked_fill(~torch.from_numpy(seen), -3e38)[None, None]
    given = torch.from_numpy(ids)[None], torch.from_numpy(at)[None]
    logits = network(given[0], attention_mask=mask, position_ids=given[1]).logits[0]
    return cast(torch.Tensor, logits)


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    room = 5e-5 * float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=room)


@torch.inference_mode()
def test_the_first_step_may_keep_nothing() -> None:
    network, forward = ready("llama")
    cache, other = KVCache(8), Decoding(network, forward, 3, seed=9)
    for ids in ([5, 6, 7], [9]):
        chunk = Chunk(0, np.array(ids, np.int32), 0, (), SCRATCH + np.arange(len(ids)))
        scratch = KVCache(len(ids), keeps=False)
        batch = PackedBatch([chunk], cache, True, CPU, scratch=scratch)
        found = forward(chunk.tokens.astype(np.int64), batch, [len(ids) - 1])
        expected = network(torch.tensor([ids])).logits[0, -1]
        torch.testing.assert_close(found.rows[0], expected, rtol=0, atol=1e-4)
        other.step(3)


@torch.inference_mode()
def test_a_window_counts_positions_where_later_ones_were_computed_before() -> None:
    network, forward = ready("a window")
    window, positions = network.config.sliding_window, [*range(8), *range(14, 20), *range(8, 14)]
    ids = np.random.default_rng(7).integers(3, 128, len(positions))
    slots, cache = np.arange(len(ids)), KVCache(len(ids))
    found = []
    for first, last, context in (
        (0, 8, ()),
        (8, 14, (Segment(slots[:8]),)),
        (14, 20, (Segment(slots[:8]), Segment(slots[8:14], 14))),
    ):
        tokens, own = ids[first:last].astype(np.int32), slots[first:last]
        chunk = Chunk(0, tokens, positions[first], context, own)
        batch = PackedBatch([chunk], cache, share=True, device=CPU)
        found.append(forward(ids[first:last], batch, [3, 5]).rows.clone())
    at = np.array(positions)
    seen = np.tril(at[:, None] - at < window)
    expected = masked(network, ids, at, seen)[[3, 5, 11, 13, 17, 19]]
    near(torch.cat(found), expected)


@FEW_AND_ALL
@torch.inference_mode()
def test_spans_may_be_used_at_other_positions_than_they_were_computed_at(
    name: str, runs: list[Any]
) -> None:
    model = prepared(varied(NETWORKS[name]))
    network, random = varied(NETWORKS[name]), np.random.default_rng(12)
    window = getattr(network.config, "sliding_window", None)
    for new, shifts in ((1, (0, 5)), (6, (3, 8)), (5, (0, 0)), (20, (2, 40))):
        lengths, spans = (4, 7, new), list[Segment]()
        ids = random.integers(3, 128, sum(lengths))
        slots, cache = np.arange(len(ids)), KVCache(len(ids))
        begin, starts = shifts[1] + lengths[1], (0, 4, 11)
        for number, first in enumerate(starts):
            tokens = ids[first : first + lengths[number]].astype(np.int32)
            own = slots[first : first + lengths[number]]
            last = number == 2
            chunk = Chunk(0, tokens, begin if last else 0, tuple(spans) if last else (), own)
            batch = PackedBatch([chunk], cache, True, CPU, model.positions)
            before, wanted = len(runs), range(len(tokens) - min(2, len(tokens)), len(tokens))
            found = model.forward(tokens.astype(np.int64), batch, list(wanted)).rows.clone()
            assert len(runs) == before + (number > 0)  # the first step shapes the cache
            if not last:
                spans.append(Segment(own, 0, shifts[number]))
        at = np.concatenate(
            [shift + np.arange(n) for shift, n in zip((*shifts, begin), lengths, strict=True)]
        )
        part = np.repeat(np.arange(3), lengths)
        seen = np.tril((part[:, None] == part) | (part[:, None] == 2))
        if window:
            seen &= at[:, None] - at < window
        near(found, masked(network, ids, at, seen)[-len(found) :])


@pytest.mark.long
@torch.inference_mode()
def test_caches_and_threads_may_change(runs: list[Any]) -> None:
    network, forward = ready("llama")
    before = torch.get_num_threads()
    try:
        one, other = (Decoding(network, forward, 5, seed) for seed in (2, 3))
        for threads in (1, 3, 2):
            torch.set_num_threads(threads)
            for decoding in (one, other, one):
                decoding.step(4)
                decoding.grow([3, 2], 1)
    finally:
        torch.set_num_threads(before)
    assert len(runs) >= 9


@pytest.mark.long
@torch.inference_mode()
def test_engines_in_several_threads_do_not_disturb_each_other() -> None:
    network, forward = ready("llama")
    decodings = [Decoding(network, forward, 6, seed) for seed in range(3)]

    @torch.inference_mode()
    def decode(decoding: Decoding) -> None:
        for count in (1, 6, 2, 5, 1, 4):
            decoding.step(count)
            decoding.grow([3, 4], count)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(decode, decodings))


@pytest.mark.long
@torch.inference_mode()
def test_a_step_with_more_tokens_is_computed_as_always(runs: list[Any]) -> None:
    decoding = Decoding(*ready("llama"), prompts=MOST + 1, seed=4)
    before = len(runs)
    decoding.step(MOST + 1)
    assert len(runs) == before


@torch.inference_mode()
def test_a_recorded_step_does_not_keep_a_cache() -> None:
    network, forward = ready("llama")
    decoding = Decoding(network, forward, 2, 5)
    decoding.step(2)
    assert sum(len(each._recordings) for each in forward._recorded.values()) > 0
    del decoding
    gc.collect()
    assert sum(len(each._recordings) for each in forward._recorded.values()) == 0


@torch.inference_mode()
def test_a_token_that_the_network_does_not_have_is_refused() -> None:
    _, forward = ready("llama")
    cache, slots = KVCache(4), np.arange(1)

    def compute(token: int) -> None:
        batch = PackedBatch([Chunk(0, np.array([token], np.int32), 0, (), slots)], cache, True, CPU)
        forward(np.array([token]), batch, [0])

    for _ in range(2):  # then by the recorded step
        for token in (-1, 128, 10**6):
            with pytest.raises(IndexError):
                compute(token)
        compute(3)
