"""The Triton kernels, in Triton's interpreter, against the dense reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from relquery.engine.executor import Chunk, Segment
from relquery.model.attention_plan import plan_step
from relquery.model.torch_runtime import attention
from relquery.model.torch_runtime.cache import PositionScheme, RotaryEmbedding
from relquery.model.torch_runtime.on_gpu import GpuAttention, HeldAttention, _Held, _OnDevice
from tests.model.attention.test_attention import WIDTH, any_batch, check
from tests.model.oracle.strategies import chunk_of
from tests.model.test_spans import Spec
from tests.model.test_spans import check as check_spans

pytest.importorskip("triton")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "kernels_of", lambda device: GpuAttention)
        yield


def test_a_prefix_that_some_share_is_read_for_each_within_its_window() -> None:
    chunks = [
        chunk_of(range(9), 0),
        chunk_of([*range(20, 44), 50], 24),
        chunk_of([*range(20, 44), 51, 52], 24),
        chunk_of([*range(20, 40), 60], 20),
    ]
    for window in (None, 7):
        check(chunks, True, window=window, softcap=3.0)


def test_arrays_of_any_plan_begin_where_triton_needs_no_other_kernel() -> None:
    """Triton compiles anew for each combination of addresses that are multiples of 16 bytes."""
    for count in range(1, 6):
        for keys in range(1, 6):
            context = (Segment(np.arange(keys), 0, 7),)
            own = [
                Chunk(n, np.zeros(n + 1, np.int32), 20, context, 30 + np.arange(n + 1))
                for n in range(count)
            ]
            plan = plan_step(own, share=True, heads=2, kv_heads=1, threads=4)
            held = [_OnDevice(plan, CPU), _Held(plan, CPU)]
            lists = [each for one in held for each in one.lists.values()]
            assert all(each.data_ptr() % 16 == 0 for each in lists if len(each))
            for name, each in held[0].lists.items():
                given = getattr(plan, name).reshape(-1)
                assert each[: len(given)].tolist() == given.tolist()


def test_a_place_for_plans_follows_spans_to_other_positions() -> None:
    torch.manual_seed(0)
    scheme = PositionScheme((RotaryEmbedding(torch.tensor([1.0, 0.1]), interleaved=False),), True)
    stored = torch.randn(1, 12, 4), torch.randn(1, 12, 4)
    query = torch.randn(1, 2, 4)

    def step(shift: int) -> list[Chunk]:
        span = (Segment(np.arange(5), 0, shift),) if shift else ()
        one = np.array([6])
        return [Chunk(0, one.astype(np.int32), 20, (*span, Segment(one - 1, 19)), one)]

    def attended(by: GpuAttention) -> list[float]:
        outputs = by.attend(0, query, stored, None, scale=0.5)
        return outputs.flatten().tolist()

    held = HeldAttention(step(7), True, scheme)
    attended(held)
    for shift in (9, 0, 7):
        assert held.follow(step(shift))
        assert attended(held) == attended(GpuAttention(step(shift), True, scheme))
    plain = HeldAttention(step(0), True, scheme)
    attended(plain)
    assert not plain.follow(step(7)), "its kernel turns nothing"


@pytest.mark.long
@settings(max_examples=25)  # in the interpreter, an example takes a second
@any_batch([(WIDTH, WIDTH), (32, 32), (48, 16), (20, 35)], [torch.float32, torch.float16])
def test_a_packed_batch_equals_dense_attention_per_request(
    chunks: list[Chunk], share: bool, heads: tuple[int, int], **options: Any
) -> None:
    check(chunks, share, *heads, **options)


@pytest.mark.long
@pytest.mark.parametrize("window", [None, 150])
def test_prompts_of_hundreds_of_tokens_and_decodes_in_one_batch(window: int | None) -> None:
    prefix = list(range(1000, 1300))
    chunks = [
        chunk_of(range(100), 0),
        *(chunk_of([*prefix, *range(2000 + 40 * n, 2033 + 40 * n)], 332) for n in range(6)),
        chunk_of([*prefix, *range(2500, 2530)], 300),
    ]
    check(chunks, True, window=window, slots=3000, widths=(32, 32))


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gemma2", "mpt"])
def test_spans_are_used_at_other_positions(name: str) -> None:
    one, other = tuple(range(20, 26)), tuple(range(40, 44))
    specs: list[Spec] = [(5, one, other, 6), (other, 7, one, 8, 9), (one, other, 10)]
    check_spans(name, specs)
