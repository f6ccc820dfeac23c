"""The Triton kernels, in Triton's interpreter, against the dense reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

from relquery.engine.executor import Chunk
from relquery.model.torch_runtime.attention import batch
from relquery.model.torch_runtime.attention.on_gpu import GpuAttention
from tests.model.attention.test_attention import WIDTH, any_batch, check
from tests.model.oracle.strategies import chunk_of
from tests.model.test_spans import Spec
from tests.model.test_spans import check as check_spans

pytest.importorskip("triton")


@pytest.fixture(autouse=True, scope="module")
def kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "kernels_of", lambda device: GpuAttention)
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
@pytest.mark.parametrize(
    ("name", "relocation"),
    [("llama", "queries"), ("llama", "keys"), ("gemma2", "queries"), ("mpt", "queries")],
)
def test_spans_are_used_at_other_positions(name: str, relocation: str) -> None:
    one, other = tuple(range(20, 26)), tuple(range(40, 44))
    specs: list[Spec] = [(5, one, other, 6), (other, 7, one, 8, 9), (one, other, 10)]
    check_spans(name, specs, relocation=relocation)
