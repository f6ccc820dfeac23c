"""The Triton kernels, in Triton's interpreter, against the dense reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relquery.engine.executor import Chunk
from relquery.model.attention import batch
from relquery.model.attention.on_gpu import GpuAttention
from tests.model.attention.test_attention import WIDTH, check
from tests.model.oracle.strategies import batches, chunk_of
from tests.model.test_spans import Spec
from tests.model.test_spans import check as check_spans

pytest.importorskip("triton")


@pytest.fixture(autouse=True, scope="module")
def kernels() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "kernels_of", lambda device: GpuAttention)
        yield


@settings(max_examples=15)
@given(
    chunks=batches(),
    share=st.booleans(),
    heads=st.sampled_from([(4, 4), (4, 2), (3, 1)]),
    window=st.none() | st.integers(1, 40),
    softcap=st.none() | st.just(3.0),
    widths=st.sampled_from([(WIDTH, WIDTH), (32, 32), (48, 16), (20, 35)]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
)
def test_a_packed_batch_equals_dense_attention_per_request(
    chunks: list[Chunk],
    share: bool,
    heads: tuple[int, int],
    window: int | None,
    softcap: float | None,
    widths: tuple[int, int],
    dtype: torch.dtype,
) -> None:
    check(chunks, share, *heads, window=window, softcap=softcap, widths=widths, dtype=dtype)


@pytest.mark.parametrize("window", [None, 150])
def test_prompts_of_hundreds_of_tokens_and_decodes_in_one_batch(window: int | None) -> None:
    prefix = list(range(1000, 1300))
    chunks = [
        chunk_of(range(100), 0),
        *(chunk_of([*prefix, *range(2000 + 40 * n, 2033 + 40 * n)], 332) for n in range(6)),
        chunk_of([*prefix, *range(2500, 2530)], 300),
    ]
    check(chunks, True, window=window, slots=3000, widths=(32, 32))


@pytest.mark.parametrize(
    ("name", "relocation"),
    [("llama", "queries"), ("llama", "keys"), ("gemma2", "queries"), ("mpt", "queries")],
)
def test_spans_are_used_at_other_positions(name: str, relocation: str) -> None:
    one, other = tuple(range(20, 26)), tuple(range(40, 44))
    specs: list[Spec] = [(5, one, other, 6), (other, 7, one, 8, 9), (one, other, 10)]
    check_spans(name, specs, relocation=relocation)
