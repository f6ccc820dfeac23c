"""Plain attention on packed batches, and the function that networks call, against the dense
reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.torch_runtime import attention as module
from relquery.model.torch_runtime.attention import PackedBatch, attention
from relquery.model.torch_runtime.cache import KVCache
from tests.model.oracle.dense import dense_attention, visible_keys
from tests.model.oracle.strategies import SLOTS, batches, chunk_of, sequence_of

WIDTH, SCALE = 8, 0.5
CPU = torch.device("cpu")
NEAR = {torch.float32: 2e-5, torch.float64: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


class Layer(nn.Module):
    """What the function needs to know of its caller."""

    layer_idx = 0


def states(heads: int, seed: int, rows: int, width: int = WIDTH) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, heads, width, generator=generator) * 1.5


def attend(*tensors: Tensor, scale: float | None = SCALE, **options: Any) -> Tensor:
    """(tokens, heads, head_dim) for queries, keys and values, each (tokens, heads, head_dim)."""
    query, key, value = (each.transpose(0, 1).unsqueeze(0) for each in tensors)
    output, _ = attention(Layer(), query, key, value, None, scale, **options)
    return output[0]


def filled_cache(chunks: Sequence[Chunk], keys: Tensor, values: Tensor) -> KVCache:
    """Contexts are written; all other slots hold numbers that would be noticed."""
    cache = KVCache(len(keys))
    rubbish = (torch.full_like(states, 50.0) for states in (keys, values))
    cache.write(0, torch.arange(len(keys)), *rubbish)
    written = {slot for chunk in chunks for slot in chunk.writes.tolist()}
    known = {slot for chunk in chunks for slot in sequence_of(chunk)} - written
    slots = torch.tensor(sorted(known), dtype=torch.long)
    if len(slots):
        cache.write(0, slots, keys[slots], values[slots])
    return cache


def check(
    chunks: Sequence[Chunk],
    share: bool,
    heads: int = 4,
    kv_heads: int = 2,
    window: int | None = None,
    softcap: float | None = None,
    slots: int = SLOTS,
    widths: tuple[int, int] = (WIDTH, WIDTH),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Run the function and compare each chunk with dense attention over its own sequence.

    widths: of keys and of values.
    """
    keys = states(kv_heads, 1, slots, widths[0]).to(dtype)
    values = states(kv_heads, 2, slots, widths[1]).to(dtype)
    batch = PackedBatch(chunks, filled_cache(chunks, keys, values), share, CPU)
    writes = np.concatenate([chunk.writes for chunk in chunks])
    query = states(heads, 3, len(writes), widths[0]).to(dtype)
    options: Any = {"sliding_window": window, "softcap": softcap, "batch": batch}
    output = attend(query, keys[writes], values[writes], **options)
    assert output.shape == (len(writes), heads, widths[1])
    start = 0
    for chunk in chunks:
        stop = start + len(chunk.tokens)
        sequence = sequence_of(chunk)
        visible = visible_keys(chunk.position, len(chunk.tokens), window)
        expected, _ = dense_attention(
            query[start:stop], keys[sequence], values[sequence], visible, SCALE, softcap
        )
        found, near = output[start:stop].double(), NEAR[dtype]
        torch.testing.assert_close(found, expected, atol=near, rtol=5 * near)
        start = stop


def any_batch(
    widths: Sequence[tuple[int, int]], dtypes: Sequence[torch.dtype]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property's arguments: those of `check`, all of them."""
    return given(
        chunks=batches(),
        share=st.booleans(),
        heads=st.sampled_from([(4, 4), (4, 2), (3, 1)]),
        window=st.none() | st.integers(1, 40),
        softcap=st.none() | st.just(3.0),
        widths=st.sampled_from(widths),
        dtype=st.sampled_from(dtypes),
    )


@any_batch([(WIDTH, WIDTH)], [torch.float32, torch.float64])
def test_a_packed_batch_equals_dense_attention_per_request(
    chunks: list[Chunk], share: bool, heads: tuple[int, int], **options: Any
) -> None:
    check(chunks, share, *heads, **options)


@pytest.mark.long
@any_batch([(WIDTH, WIDTH), (32, 32), (48, 16), (20, 35), (64, 48)], [*NEAR])
def test_heads_have_any_width_and_type(
    chunks: list[Chunk], share: bool, heads: tuple[int, int], **options: Any
) -> None:
    check(chunks, share, *heads, **options)


@pytest.mark.parametrize(("share", "window"), [(True, 33), (False, None)])
@pytest.mark.parametrize("width", [32, 64])
def test_numbers_of_two_bytes_are_off_by_no_more_than_their_rounding(
    share: bool, window: int | None, width: int
) -> None:
    """Of bfloat16: each weight is rounded once, by 1/256 of it at most, and so is the output."""
    chunks = [
        chunk_of(range(70), 0),
        *(chunk_of([*range(100, 160), 170 + n], 60) for n in range(3)),
        chunk_of([*range(100, 160), *range(180, 200)], 60),
    ]
    keys, values = (states(2, seed, SLOTS, width).bfloat16() for seed in (1, 2))
    writes = np.concatenate([chunk.writes for chunk in chunks])
    query = states(4, 3, len(writes), width).bfloat16()
    batch = PackedBatch(chunks, filled_cache(chunks, keys, values), share, CPU)
    output = attend(query, keys[writes], values[writes], sliding_window=window, batch=batch)
    own = torch.split(torch.arange(len(writes)), [len(chunk.tokens) for chunk in chunks])
    for chunk, rows in zip(chunks, own, strict=True):
        seen = visible_keys(chunk.position, len(rows), window)
        key, value = (each[sequence_of(chunk)] for each in (keys, values))
        expected, _ = dense_attention(query[rows], key, value, seen, SCALE)
        size, _ = dense_attention(query[rows], key, value.abs(), seen, SCALE)
        assert ((output[rows] - expected).abs() <= 2 * size / 256 + 1e-5).all()


def test_a_window_cuts_inside_what_is_shared_or_just_before_it() -> None:
    prefix = list(range(30))
    chunks = [
        *(chunk_of([*prefix, own], 30) for own in (40, 41)),
        chunk_of([*prefix, *range(50, 53)], 30),
        chunk_of([*prefix, *range(60, 75)], 40),
        chunk_of(range(80, 120), 0),
    ]
    for window in (1, 3, 29, 30, 31, 32, 33, 1000):
        for share in (True, False):
            check(chunks, share, window=window)


def hundreds(
    share: bool,
    window: int | None,
    dtype: torch.dtype,
    widths: tuple[int, int] = (WIDTH, WIDTH),
) -> None:
    """Check prompts of hundreds of tokens and decodes in one batch."""
    prefix = list(range(1000, 1300))
    chunks = [
        chunk_of(range(200), 0),
        chunk_of(range(200, 500), 130),
        *(chunk_of([*prefix, *range(2000 + 40 * n, 2033 + 40 * n)], 332) for n in range(6)),
        chunk_of([*prefix, *range(2500, 2600)], 300),
        chunk_of([*range(200), *range(2700, 2710)], 200),
    ]
    check(chunks, share, window=window, slots=3000, dtype=dtype, widths=widths)


@pytest.mark.parametrize("window", [150, None])
def test_prompts_of_hundreds_of_tokens_and_decodes_in_one_batch(window: int | None) -> None:
    hundreds(True, window, torch.float32)


def test_of_a_long_chunk_few_scores_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES", 4 * 250)
    hundreds(True, 150, torch.float32)


def test_values_that_are_no_numbers_reach_only_who_sees_them() -> None:
    prefix = list(range(200))
    chunks = [
        chunk_of([*prefix, *range(1000 + 100 * n, 1024 + 100 * n)], 200 + n) for n in range(3)
    ]
    keys, values = (states(2, seed, 2000) for seed in (1, 2))
    values[chunks[0].writes] = torch.nan
    batch = PackedBatch(chunks, filled_cache(chunks, keys, values), True, CPU)
    writes = np.concatenate([chunk.writes for chunk in chunks])
    query = states(4, 3, len(writes))
    output = attend(query, keys[writes], values[writes], batch=batch)
    assert output[: len(chunks[0].tokens)].isnan().all()
    assert output[len(chunks[0].tokens) :].isfinite().all()


def test_keys_and_values_are_written_to_the_chunks_slots() -> None:
    keys, values = states(2, 1, 5), states(2, 2, 5)
    chunk = chunk_of([9, 3, 4, 0, 7], 0)
    cache = KVCache(10)
    batch = PackedBatch([chunk], cache, True, CPU)
    attend(states(4, 3, 5), keys, values, batch=batch)
    key, value = cache.read(0, torch.from_numpy(chunk.writes))
    assert torch.equal(key.transpose(0, 1), keys)
    assert torch.equal(value.transpose(0, 1), values)


def test_the_scale_defaults_to_that_of_the_head_size() -> None:
    chunk, tensors = chunk_of(range(6), 0), [states(2, seed, 6) for seed in range(3)]

    def run(scale: float | None) -> Tensor:
        return attend(*tensors, scale=scale, batch=PackedBatch([chunk], KVCache(6), True, CPU))

    assert torch.equal(run(None), run(WIDTH**-0.5))


def test_networks_that_would_compute_something_else_are_refused() -> None:
    tensors = [states(2, seed, 3) for seed in range(3)]
    with pytest.raises(ModelError, match="does not hand the batch on"):
        attend(*tensors)
    batch = PackedBatch([chunk_of(range(3), 0)], KVCache(3), True, CPU)
    with pytest.raises(ModelError, match="attention sinks"):
        attend(*tensors, s_aux=torch.zeros(2), batch=batch)
