"""The kernels, against torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from relquery.engine.executor import NOT_FINITE
from relquery.model.kernels import panels
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS, Arguments, bits
from relquery.model.kernels.largest import find_largest
from relquery.model.kernels.program import Program, can_run
from relquery.model.kernels.threads import Body
from tests.model.oracle.targets import TARGETS, on_target

pytestmark = pytest.mark.long

Array = npt.NDArray[Any]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(2, 70, 1), (8, 7, 2), (24, 1, 2), (80, 70, 2), (128, 7, 1), (1000, 1, 1), (1000, 70, 2)]
"""Width, rows and threads, so that all pairs of few and many occur."""
EPSILON = 1e-5
UNIT = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""In the last place, relative."""
HALVES = 1 + np.arange(64) * 2.0**-9  # every other one is halfway between two bfloat16 numbers
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 65_519.0, 65_520.0, 6e-8, 2e-38]
SMALLEST = 2.0**-126

needs_program = pytest.mark.skipif(not can_run(), reason="torch has no OpenMP")


@pytest.fixture(params=TARGETS, autouse=True)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every target that this machine can run."""
    with on_target(request.param):
        yield request.param


# ---- what a decoder computes between its products


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
    room = 2 * UNIT[found.dtype]
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
    for given in ({"ADDED": added.data_ptr()}, dict[str, int]()):
        run(kernel.NORMALIZE, states, result, width, threads, WEIGHT=weight.data_ptr(), **given)
        assert torch.equal(states, total)
        assert close(result, normalized(total, weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_rounded_like_those_of_torch(dtype: torch.dtype) -> None:
    """Also halves, infinities, NaN, and numbers at the ends of what a type holds."""
    pairs = [(1.0, half - 1) for half in HALVES] + [(odd, 0.0) for odd in ODD]
    pairs += [(odd, odd) for odd in ODD] + [(65_472.0, 47.0), (65_472.0, 48.0), (6e-8, 9e-8)]
    states, added = torch.tensor(pairs).T.contiguous().to(dtype).unsqueeze(1)
    states, added = torch.cat([states, -states], -1), torch.cat([added, -added], -1)
    result, weight = torch.empty_like(states), torch.ones(states.shape[1])
    expected = (states.float() + added.float()).to(dtype)
    given = {"ADDED": added.data_ptr(), "WEIGHT": weight.data_ptr()}
    run(kernel.NORMALIZE, states, result, states.shape[1], 1, **given)
    torch.testing.assert_close(states, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("sizes", [(1, 1), (64, 32), (96, 160), (200, 150)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gated", [False, True])
def test_products_with_panels_are_those_of_the_matrix(
    dtype: torch.dtype, sizes: tuple[int, int], gated: bool
) -> None:
    """Of every number of rows up to 70: tiles of all sizes, and more rows than fit at a time."""
    width, inputs, outputs = panels.PANEL, *sizes
    inputs, outputs = 2 * inputs, outputs * (2 * width if gated else 1)
    torch.manual_seed(inputs)
    weight = torch.randn(outputs, inputs).to(dtype)
    bias, states = torch.randn(outputs).to(dtype), torch.randn(70, inputs).to(dtype)
    together = 1 if dtype == torch.float32 else 2
    filled = torch.zeros(-(-outputs // width) * width, inputs, dtype=dtype)
    filled[:outputs] = weight
    packed = filled.view(-1, width, inputs // together, together).transpose(1, 2).contiguous()
    work = torch.empty(2 * panels.WORK_BYTES, dtype=torch.uint8)
    expected = states.double() @ weight.double().T + bias.double()
    if gated:
        gate, up = expected.to(dtype).chunk(2, -1)
        expected = silu(gate.double()).to(dtype).double() * up.double()
    for rows in (*range(1, 25), 63, 64, 65, 70):
        result = torch.full((rows + 1, expected.shape[1]), 7.0, dtype=dtype)
        a = Arguments(panels.ARGUMENTS)
        a[panels.KIND], a[panels.ROWS], a[panels.WIDTH] = KINDS[dtype], rows, width
        a[panels.INPUTS], a[panels.OUTPUTS], a[panels.GATED] = inputs, outputs, gated
        a[panels.SOURCE], a[panels.MATRIX] = states.data_ptr(), packed.data_ptr()
        a[panels.BIAS], a[panels.RESULT] = bias.data_ptr(), result.data_ptr()
        a[panels.WORK] = work.data_ptr()
        panels.MULTIPLY.run(a, 1 + rows % 2)
        room = 4 * UNIT[dtype] * float(expected.abs().max())
        assert (result[:rows].double() - expected[:rows]).abs().max() <= room
        assert (result[rows:] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "threads"), [(width, threads) for width, _, threads in SHAPES])
@pytest.mark.parametrize("name", ["SILU", "GELU_TANH"])
def test_gates_are_activated(dtype: torch.dtype, width: int, threads: int, name: str) -> None:
    torch.manual_seed(width)
    gated = (torch.randn(70, 2 * width) * torch.logspace(-3, 3, 70)[:, None]).to(dtype)
    gated[-1, :2] = torch.tensor([3e4, -3e4])
    gated[-2] = 1
    gated[-2, :width] = torch.finfo(dtype).max / 2 * (-1) ** torch.arange(width)
    result = torch.empty(70, width, dtype=dtype)
    number = getattr(kernel, name)
    run(kernel.ACTIVATE, gated, result, width, threads, ACTIVATION=number)
    gate, up = gated.chunk(2, -1)
    wide = gate.double()  # torch's own loses digits where the result is small
    expected = silu(wide) if name == "SILU" else gelu(wide, approximate="tanh")
    assert close(result, expected.to(dtype) * up)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(
    "shape",  # heads, key heads, width, half of what is rotated, threads
    [(1, 1, 8, 4, 1), (6, 2, 24, 8, 2), (5, 1, 80, 40, 1), (6, 2, 16, 0, 1), (1, 1, 80, 40, 2)],
)
def test_heads_are_rotated_and_stored(
    dtype: torch.dtype, weighed: bool, shape: tuple[int, ...]
) -> None:
    heads, kv_heads, width, half, threads = shape
    torch.manual_seed(width)
    rows, room, scratch = 30, 50, 1000
    rng = np.random.default_rng(width)
    positions, slots = rng.integers(0, 90, rows), rng.permutation(room)[:rows]
    slots[::3] += scratch  # these go to the step's own store
    projected = torch.randn(rows, (heads + 2 * kv_heads) * width).to(dtype)
    stores = torch.zeros(4, kv_heads, room, width, dtype=dtype)
    angles = torch.arange(90)[:, None] * torch.logspace(0, -3, max(half, 1))[:half]
    cosines, sines = angles.cos().contiguous(), angles.sin().contiguous()
    weights = torch.rand(2, width).to(dtype).float()
    places = "KEYS", "VALUES", "OWN_KEYS", "OWN_VALUES"
    given = {name: store.data_ptr() for name, store in zip(places, stores, strict=True)}
    given |= {"HEADS": heads, "KV_HEADS": kv_heads, "HALF": half, "SCRATCH_FROM": scratch}
    given |= {"COSINES": cosines.data_ptr(), "SINES": sines.data_ptr()}
    given |= {"POSITIONS": positions.ctypes.data, "SLOTS": slots.ctypes.data}
    given |= {"STORE": room, "OWN_STORE": room}
    if weighed:
        given |= {"QUERY_WEIGHT": weights[0].data_ptr(), "KEY_WEIGHT": weights[1].data_ptr()}
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 15, 1_024, 1_025, 5_000])
def test_the_first_of_the_largest_is_found(dtype: torch.dtype, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    numbers = torch.randn(40, width, generator=generator).to(dtype)
    numbers[0] = 0  # all are the largest
    numbers[1] = -torch.inf
    numbers[2, width // 2 :] = 7
    numbers[3, -1] = torch.inf
    numbers[4] = torch.nan
    wide = torch.cat([numbers, numbers + 1], 1)[:, :width]  # with gaps in memory
    largest = [(row, max(row)) for row in numbers.float().tolist()]
    expected = [row.index(most) if isfinite(most) else NOT_FINITE for row, most in largest]
    assert find_largest(numbers).tolist() == find_largest(wide).tolist() == expected
    assert find_largest(numbers[:0]).tolist() == []


# ---- programs: bodies that run in order, on all threads

ROWS, WIDTH, STAGES = 40, 32, 6


def look_up(tokens: Tensor, source: Tensor, result: Tensor) -> Array:
    """Arguments: rows of the source, by their numbers, to the result."""
    a = np.zeros(kernel.ARGUMENTS, dtype=np.int64)
    a[kernel.KIND], a[kernel.ROWS], a[kernel.WIDTH] = KINDS[source.dtype], len(tokens), WIDTH
    a[kernel.SOURCE], a[kernel.RESULT] = source.data_ptr(), result.data_ptr()
    a[kernel.TOKENS] = tokens.data_ptr()
    return a


@needs_program
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_body_sees_all_that_the_ones_before_it_wrote(threads: int) -> None:
    """Each stage shuffles the rows of the one before, which many threads have written."""
    random = torch.Generator().manual_seed(0)
    states = [torch.zeros(ROWS, WIDTH) for _ in range(STAGES + 1)]
    orders = [torch.randperm(ROWS, generator=random) for _ in range(STAGES)]
    arguments = list(map(look_up, orders, states[:-1], states[1:]))
    ends = [([0], kernel.SOURCE), ([STAGES - 1], kernel.RESULT)]
    program, before = Program([kernel.LOOK_UP] * STAGES, arguments, ends), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(300):
            source, result = torch.rand(ROWS, WIDTH, generator=random), torch.empty(ROWS, WIDTH)
            program.run([source.data_ptr(), result.data_ptr()])
            for order in orders:
                source = source[order]
            assert torch.equal(result, source)
    finally:
        torch.set_num_threads(before)


@needs_program
def test_one_input_can_be_told_to_several_bodies() -> None:
    source, tokens = torch.rand(ROWS, WIDTH), torch.arange(ROWS)
    results = torch.zeros(2, ROWS, WIDTH)
    arguments = [look_up(tokens, source, each) for each in results]
    program = Program([kernel.LOOK_UP] * 2, arguments, [([0, 1], kernel.ROWS)])
    for rows in (3, 1, 17):
        results.zero_()
        program.run([rows])
        assert torch.equal(results[:, :rows], source[:rows].expand(2, -1, -1))
        assert not results[:, rows:].any()
