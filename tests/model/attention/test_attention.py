"""The registered attention function on packed batches, against the dense reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from relquery import native
from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.torch_runtime.attention import operators
from relquery.model.torch_runtime.attention.batch import PackedBatch
from relquery.model.torch_runtime.attention.function import attention
from relquery.model.torch_runtime.cache.device import KVCache
from tests.model.oracle.dense import dense_attention, visible_keys
from tests.model.oracle.strategies import SLOTS, batches, chunk_of, sequence_of

WIDTH, SCALE = 8, 0.5
CPU = torch.device("cpu")
BFLOAT16 = torch.bfloat16
# Torch's operators compute float64, for which there are no operators.
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
    room: float = 1.0,
) -> None:
    """Run the function and compare each chunk with dense attention over its own sequence.

    widths: of keys and of values. room: times what results may be off by.
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
        found, near = output[start:stop].double(), room * NEAR[dtype]
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
            for dtype in (torch.float32, torch.float64):
                check(chunks, share, window=window, dtype=dtype)


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
    room = 2.0 if native.target() == "v2" else 1.0  # it rounds each product before it adds it
    check(chunks, share, window=window, slots=3000, dtype=dtype, widths=widths, room=room)


@pytest.mark.parametrize(("share", "window"), [(True, 150), (False, None)])
def test_prompts_of_hundreds_of_tokens_and_decodes_in_one_batch(
    share: bool, window: int | None
) -> None:
    hundreds(share, window, torch.float32)


@pytest.mark.long
@pytest.mark.parametrize(("share", "window"), [(True, None), (True, 150), (False, 150)])
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("widths", [(32, 32), (64, 48)])
def test_such_prompts_have_heads_of_any_width_and_type(
    share: bool, window: int | None, dtype: torch.dtype, widths: tuple[int, int]
) -> None:
    hundreds(share, window, dtype, widths)


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.float32, WIDTH), pytest.param(BFLOAT16, 64, marks=pytest.mark.long)]
)
def test_values_that_are_no_numbers_reach_only_who_sees_them(
    dtype: torch.dtype, width: int
) -> None:
    prefix = list(range(200))
    chunks = [
        chunk_of([*prefix, *range(1000 + 100 * n, 1024 + 100 * n)], 200 + n) for n in range(3)
    ]
    keys, values = (states(2, seed, 2000, width).to(dtype) for seed in (1, 2))
    values[chunks[0].writes] = torch.nan
    batch = PackedBatch(chunks, filled_cache(chunks, keys, values), True, CPU)
    writes = np.concatenate([chunk.writes for chunk in chunks])
    query = states(4, 3, len(writes), width).to(dtype)
    output = attend(query, keys[writes], values[writes], batch=batch)
    assert output[: len(chunks[0].tokens)].isnan().all()
    assert output[len(chunks[0].tokens) :].isfinite().all()


def test_keys_and_values_are_written_to_the_chunks_slots() -> None:
    keys, values = states(2, 1, 5), states(2, 2, 5)
    chunk = chunk_of([9, 3, 4, 0, 7], 0)
    cache = KVCache(10)
    batch = PackedBatch([chunk], cache, True, CPU)
    attend(states(4, 3, 5), keys, values, batch=batch)
    key, value = cache.read(0, torch.from_numpy(chunk.writes)[None])
    assert torch.equal(key[0], keys)
    assert torch.equal(value[0], values)


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


# ---- kernels of torch, log-sum-exp included

KERNEL_SCALE = 0.4
Kernel = Callable[..., tuple[Tensor, Tensor]]


def flash(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return operators.attend(query, [(key, value)], KERNEL_SCALE, **options)


def products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    return operators._attend_by_products(query, key, value, mask, KERNEL_SCALE, causal, softcap)


def blocks(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Products that may hold few scores at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "SCORES", 100)
        return products(query, key, value, **options)


ALL = pytest.mark.parametrize("kernel", [flash, products, blocks])


def inputs(
    queries: int, keys: int, heads: int = 4, kv_heads: int = 2, jobs: int = 3, width: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    draw = [
        torch.randn(jobs, n, count, width, generator=generator) * 2
        for n, count in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    ]
    return draw[0], draw[1], draw[2]


def agrees(
    got: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    softcap: float | None = None,
) -> None:
    """Compare with the reference; visible: (jobs, q, k). Rows that see nothing give zeros."""
    output, lse = got
    for job in range(len(query)):
        q, k, v = (t[job].transpose(0, 1) for t in (query, key, value))
        expected, expected_lse = dense_attention(q, k, v, visible[job], KERNEL_SCALE, softcap)
        torch.testing.assert_close(
            output[job].transpose(0, 1).double(), expected, atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            lse[job].transpose(0, 1).double(), expected_lse, atol=1e-5, rtol=1e-5
        )


def mask_of(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, -torch.inf).unsqueeze(1)


@ALL
def test_attention_over_all_keys_or_those_that_a_mask_does_not_hide(kernel: Kernel) -> None:
    for heads, kv_heads in ((4, 4), (4, 2), (6, 1)):
        for queries, keys in ((1, 1), (1, 40), (7, 23), (33, 5)):
            given = inputs(queries, keys, heads, kv_heads)
            agrees(kernel(*given), *given, torch.ones(3, queries, keys).bool())
    for length in (1, 2, 17, 40):  # causal
        given, visible = inputs(length, length), torch.ones(3, length, length).bool().tril()
        agrees(kernel(*given, causal=True), *given, visible)
    for queries, rows in ((1, 1), (6, 1), (6, 6)):  # a mask per job or per query
        given = inputs(queries, 9)
        visible = torch.rand(3, rows, 9, generator=torch.Generator().manual_seed(rows)) > 0.4
        visible[:, :, 0] = True
        found = kernel(*given, mask=mask_of(visible))
        agrees(found, *given, visible.expand(3, queries, 9))


@ALL
def test_a_query_that_sees_nothing_gives_zeros_and_minus_infinity(kernel: Kernel) -> None:
    for queries in (1, 4):
        given, visible = inputs(queries, 6), torch.ones(3, queries, 6).bool()
        visible[0] = False
        visible[1, -1] = False
        output, lse = kernel(*given, mask=mask_of(visible))
        assert torch.equal(output[0], torch.zeros_like(output[0]))
        assert bool((lse[0] == -torch.inf).all())
        assert bool((lse[1, :, -1] == -torch.inf).all())
        agrees((output, lse), *given, visible)


@pytest.mark.parametrize("softcap", [0.5, 20.0])
def test_a_softcap_bounds_the_scores(softcap: float) -> None:
    for causal in (False, True):
        given, visible = inputs(12, 12), torch.ones(3, 12, 12).bool()
        got = flash(*given, causal=causal, softcap=softcap)
        agrees(got, *given, visible.tril() if causal else visible, softcap)


def test_values_of_another_width_than_keys() -> None:
    query, key, value = inputs(5, 7)
    got = operators.attend(query, [(key, value[..., :3])], KERNEL_SCALE)
    assert got[0].shape == (3, 4, 5, 3)
    agrees(got, query, key, value[..., :3], torch.ones(3, 5, 7).bool())


@ALL
def test_parts_merge_by_their_log_sum_exp_to_the_whole(kernel: Kernel) -> None:
    query, key, value = inputs(5, 20)
    whole, lse = kernel(query, key, value)
    parts = [kernel(query, key[:, :, cut], value[:, :, cut]) for cut in (slice(13), slice(13, 20))]
    weights = torch.stack([part for _, part in parts]).softmax(0)
    merged = sum(w.unsqueeze(-1) * part for w, (part, _) in zip(weights, parts, strict=True))
    torch.testing.assert_close(merged, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.logaddexp(parts[0][1], parts[1][1]), lse)
