"""Both kernels against the dense reference, log-sum-exp included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from relquery.model.attention import kernels
from tests.model.oracle.reference import dense_attention

SCALE = 0.4
Kernel = Callable[..., tuple[Tensor, Tensor]]


def flash(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return kernels.attend(query, [(key, value)], SCALE, **options)


def products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    return kernels._attend_by_products(query, key, value, mask, SCALE, causal, softcap)


def blocks(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Products that may hold few scores at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "SCORES", 100)
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
        expected, expected_lse = dense_attention(q, k, v, visible[job], SCALE, softcap)
        torch.testing.assert_close(
            output[job].transpose(0, 1).double(), expected, atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            lse[job].transpose(0, 1).double(), expected_lse, atol=1e-5, rtol=1e-5
        )


@ALL
def test_attention_over_all_keys(kernel: Kernel) -> None:
    for heads, kv_heads in ((4, 4), (4, 2), (6, 1)):
        for queries, keys in ((1, 1), (1, 40), (7, 23), (33, 5)):
            given, visible = inputs(queries, keys, heads, kv_heads), torch.ones(3, queries, keys)
            agrees(kernel(*given), *given, visible.bool())


@ALL
def test_causal_attention_hides_later_keys(kernel: Kernel) -> None:
    for length in (1, 2, 17, 40):
        given, visible = inputs(length, length), torch.ones(3, length, length).bool().tril()
        agrees(kernel(*given, causal=True), *given, visible)


def mask_of(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, -torch.inf).unsqueeze(1)


@ALL
def test_a_mask_hides_keys_per_job_or_per_query(kernel: Kernel) -> None:
    for queries, rows in ((1, 1), (6, 1), (6, 6)):
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
    got = kernels.attend(query, [(key, value[..., :3])], SCALE)
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
