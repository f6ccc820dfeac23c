"""What a decoder computes between its products, against torch's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from relquery.model.kernels import elementwise
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS, Arguments, bits
from relquery.model.kernels.threads import Body

pytestmark = pytest.mark.long
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(2, 70, 1), (8, 7, 2), (24, 1, 2), (80, 70, 2), (128, 7, 1), (1000, 1, 1), (1000, 70, 2)]
"""Width, rows and threads, so that all pairs of few and many occur."""
EPSILON = 1e-5
SMALLEST = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""A unit in the last place, relative."""


def run(body: Body, source: Tensor, result: Tensor, width: int, threads: int, **given: int) -> None:
    a = Arguments(kernel.ARGUMENTS)
    work = torch.empty(threads * kernel.work_bytes(width), dtype=torch.uint8)
    a[kernel.KIND], a[kernel.ROWS], a[kernel.WIDTH] = KINDS[source.dtype], len(source), width
    a[kernel.SOURCE], a[kernel.RESULT] = source.data_ptr(), result.data_ptr()
    a[kernel.WORK], a[kernel.EPSILON] = work.data_ptr(), bits(EPSILON)
    for name, value in given.items():
        a[getattr(kernel, name)] = value
    body.run(a, threads)


def close(found: Tensor, expected: Tensor) -> bool:
    room = 2 * SMALLEST[found.dtype]
    return torch.allclose(found.float(), expected.float(), rtol=room, atol=room)


def normalized(states: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm as transformers computes it."""
    wide = states.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
    return weight.to(states.dtype) * wide.to(states.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "rows", "threads"), SHAPES)
def test_rows_are_normalized_after_what_is_added(
    dtype: torch.dtype, width: int, rows: int, threads: int
) -> None:
    torch.manual_seed(width)
    states, added = torch.randn(2, rows, width).to(dtype)
    weight, result = torch.rand(width).to(dtype).float(), torch.empty(rows, width, dtype=dtype)
    total = states + added
    given: dict[str, Any] = {"ADDED": added.data_ptr(), "WEIGHT": weight.data_ptr()}
    run(kernel.NORMALIZE, states, result, width, threads, **given)
    assert torch.equal(states, total)
    assert close(result, normalized(total, weight))
    run(kernel.NORMALIZE, states, result, width, threads, WEIGHT=weight.data_ptr())
    assert torch.equal(states, total)
    assert close(result, normalized(total, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "_rows", "threads"), SHAPES)
@pytest.mark.parametrize(
    ("number", "function"),
    [
        (elementwise.SILU, torch.nn.functional.silu),
        (elementwise.GELU_TANH, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_gates_are_activated(
    dtype: torch.dtype, width: int, _rows: int, threads: int, number: int, function: Any
) -> None:
    torch.manual_seed(width)
    gated = (torch.randn(70, 2 * width) * torch.logspace(-3, 3, 70)[:, None]).to(dtype)
    gated[-1, :2] = torch.tensor([3e4, -3e4])
    gated[-2] = 1
    gated[-2, :width] = torch.finfo(dtype).max / 2 * (-1) ** torch.arange(width)
    result = torch.empty(70, width, dtype=dtype)
    run(kernel.ACTIVATE, gated, result, width, threads, ACTIVATION=number)
    gate, up = gated.chunk(2, -1)  # torch's own loses digits where the result is small
    assert close(result, function(gate.double()).to(dtype) * up)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "half", "threads"),
    [(1, 1, 8, 4, 1), (6, 2, 24, 8, 2), (5, 1, 80, 40, 1), (6, 2, 16, 0, 1), (1, 1, 80, 40, 2)],
)
def test_heads_are_rotated_and_stored(
    dtype: torch.dtype,
    weighed: bool,
    heads: int,
    kv_heads: int,
    width: int,
    half: int,
    threads: int,
) -> None:
    torch.manual_seed(width)
    rows, room, scratch = 30, 50, 1000
    rng = np.random.default_rng(width)
    positions = rng.integers(0, 90, rows)
    slots = rng.permutation(room)[:rows]
    slots[::3] += scratch  # these go to the step's own store
    projected = torch.randn(rows, (heads + 2 * kv_heads) * width).to(dtype)
    stores = torch.zeros(4, kv_heads, room, width, dtype=dtype)
    angles = torch.arange(90)[:, None] * torch.logspace(0, -3, max(half, 1))[:half]
    cosines, sines = angles.cos().contiguous(), angles.sin().contiguous()
    weights = torch.rand(2, width).to(dtype).float()
    given = {
        "HEADS": heads,
        "KV_HEADS": kv_heads,
        "QUERY_WEIGHT": weights[0].data_ptr() if weighed else 0,
        "KEY_WEIGHT": weights[1].data_ptr() if weighed else 0,
        "COSINES": cosines.data_ptr(),
        "SINES": sines.data_ptr(),
        "HALF": half,
        "POSITIONS": positions.ctypes.data,
        "SLOTS": slots.ctypes.data,
        "SCRATCH_FROM": scratch,
        "STORE": room,
        "OWN_STORE": room,
    }
    for name, store in zip(("KEYS", "VALUES", "OWN_KEYS", "OWN_VALUES"), stores, strict=True):
        given[name] = store.data_ptr()
    result = torch.empty(rows, heads, width, dtype=dtype)
    run(kernel.ROTATE, projected, result, projected.shape[1], threads, **given)

    by_head = projected.view(rows, -1, width)
    queries, keys, values = torch.split(by_head, [heads, kv_heads, kv_heads], 1)
    if weighed:
        queries, keys = normalized(queries, weights[0]), normalized(keys, weights[1])
    cos, sin = cosines[positions][:, None], sines[positions][:, None]

    def rotated(states: Tensor) -> Tensor:
        x, y, rest = torch.split(states.float(), [half, half, width - 2 * half], -1)
        return torch.cat((x * cos - y * sin, y * cos + x * sin, rest), -1)

    assert close(result, rotated(queries))
    written = torch.zeros_like(stores)
    for row, slot in enumerate(slots):
        own = 2 * (slot >= scratch)
        written[own, :, slot % scratch] = rotated(keys)[row].to(dtype)
        written[own + 1, :, slot % scratch] = values[row]
    assert close(stores, written)
