"""The kernels in numba and the instructions below them, against torch and numpy."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import gelu, silu

from relquery.engine.executor import NOT_FINITE
from relquery.model.kernels import elementwise
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS, Arguments, bits
from relquery.model.kernels.attention import softmax
from relquery.model.kernels.instructions import llvm, tiles, vectors
from relquery.model.kernels.largest import find_largest
from relquery.model.kernels.program import Program, can_run
from relquery.model.kernels.threads import Body

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
NUMBERS = np.array([*HALVES, *-HALVES, *ODD, *np.random.default_rng(0).normal(size=64)])
SMALLEST = 2.0**-126

needs_program = pytest.mark.skipif(not can_run(), reason="torch has no OpenMP")


@pytest.fixture(params=[False, True])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the processor's own instructions round and multiply bfloat16 numbers."""
    if request.param and not llvm.PAIRS:
        pytest.skip("the processor has no such instruction")
    monkeypatch.setattr(llvm, "PAIRS", request.param)


def compiled(intrinsic: Any, arguments: int, *literals: int) -> Callable[..., None]:
    """An instruction as a function of so many arguments. literals: given after them."""
    names = ", ".join(f"a{number}" for number in range(arguments))
    made: dict[str, Any] = {"call": intrinsic}
    exec(f"def run({names}):\n    call({', '.join([names, *map(str, literals)])})", made)
    function: Callable[..., None] = njit(made["run"])
    return function


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
@pytest.mark.parametrize(("width", "threads"), [(width, threads) for width, _, threads in SHAPES])
@pytest.mark.parametrize("name", ["SILU", "GELU_TANH"])
def test_gates_are_activated(dtype: torch.dtype, width: int, threads: int, name: str) -> None:
    torch.manual_seed(width)
    gated = (torch.randn(70, 2 * width) * torch.logspace(-3, 3, 70)[:, None]).to(dtype)
    gated[-1, :2] = torch.tensor([3e4, -3e4])
    gated[-2] = 1
    gated[-2, :width] = torch.finfo(dtype).max / 2 * (-1) ** torch.arange(width)
    result = torch.empty(70, width, dtype=dtype)
    number = getattr(elementwise, name)
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


# ---- instructions


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_rounded_and_read_like_those_of_torch(kind: torch.dtype) -> None:
    narrow, widen = compiled(vectors.narrow, 4), compiled(vectors.widen, 4)
    given = torch.from_numpy(NUMBERS.astype(np.float32))
    exact: dict[str, Any] = {"rtol": 0, "atol": 0, "equal_nan": True}
    for count in (1, 15, 16, 17, len(given)):
        rounded, read = torch.zeros(len(given), dtype=kind), torch.zeros(len(given))
        narrow(rounded.data_ptr(), given.data_ptr(), KINDS[kind], count)
        widen(read.data_ptr(), rounded.data_ptr(), KINDS[kind], count)
        torch.testing.assert_close(rounded[:count], given.to(kind)[:count], **exact)
        torch.testing.assert_close(read, rounded.float(), **exact)
        assert not rounded[count:].any()


@pytest.mark.usefixtures("instructions")
def test_numbers_below_the_smallest_normal_one_are_rounded_or_become_zero() -> None:
    given, rounded = torch.tensor([0.75 * SMALLEST, -0.75 * SMALLEST]), torch.ones(2).bfloat16()
    compiled(vectors.narrow, 4)(rounded.data_ptr(), given.data_ptr(), llvm.BFLOAT16, 2)
    assert rounded.tolist() in (given.bfloat16().tolist(), [0.0, 0.0])


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("width", [32, 64, 160])
@pytest.mark.parametrize("rows", [4, 8])
def test_dot_products_of_pairs_are_those_of_their_numbers(width: int, rows: int) -> None:
    generator = torch.Generator().manual_seed(width + rows)
    query = torch.randn(width, generator=generator).bfloat16()
    keys = torch.randn(rows, width, generator=generator).bfloat16()
    places = np.array([key.data_ptr() for key in keys])
    wide, scores = query.float(), torch.full((2, rows, 2), 7.0)  # every other one is another's
    given = places.ctypes.data, width
    compiled(vectors.dots_of_pairs, 5, rows)(scores[0].data_ptr(), 8, query.data_ptr(), *given)
    compiled(vectors.dots, 6, rows)(scores[1].data_ptr(), 8, wide.data_ptr(), *given, llvm.BFLOAT16)
    for found in scores:
        expected = keys.double() @ query.double()
        torch.testing.assert_close(found[:, 0].double(), expected, rtol=0, atol=1e-4)
        assert (found[:, 1] == 7).all()


def numbers(seed: int, *shape: int) -> Array:
    drawn: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return drawn


def as_pairs(matrix: Array, axis: int) -> tuple[Array, Array]:
    """Neighbours along an axis as pairs of bfloat16, and the matrix rounded so."""
    rounded = torch.from_numpy(matrix).bfloat16()
    bits = np.moveaxis(rounded.view(torch.int16).numpy().view(np.uint16).astype(np.uint32), axis, 0)
    pairs = np.moveaxis(bits[0::2] | bits[1::2] << np.uint32(16), 0, axis)
    return np.ascontiguousarray(pairs), rounded.float().numpy()


def addresses(lines: Array) -> npt.NDArray[np.int64]:
    return lines.ctypes.data + lines.strides[0] * np.arange(len(lines))


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("rows", "across", "count", "fetched", "adds"),
    [
        (4, 64, 32, tiles.NOTHING, 1),
        (7, 112, 6, tiles.LINE, 0),
        (1, 16, 2, tiles.LINE, 1),
        (17, 64, 8, tiles.ONE, 1),
    ],
)
def test_scores_and_outputs_are_matrix_products(
    paired: bool, rows: int, across: int, count: int, fetched: int, adds: int
) -> None:
    one, many, before = numbers(0, rows, count), numbers(1, count, across), numbers(2, rows, across)
    left, right = one, many
    if paired:
        (left, one), (right, many) = as_pairs(one, 1), as_pairs(many, 0)
    turned = np.ascontiguousarray(left.T)
    expected = before + one.astype(float) @ many.astype(float)
    steps = count // 2 if paired else count
    scores, outputs = before.copy(), before.copy()
    into, source = (scores.ctypes.data, scores.strides[0]), (right.ctypes.data, right.strides[0])
    compiled(tiles.add_scores, 11, fetched, adds)(
        *into, addresses(left).ctypes.data, rows, *source, across, steps, paired, source[0], 16
    )
    target = outputs.ctypes.data, outputs.strides[0], rows, turned.ctypes.data, turned.strides[0]
    places = addresses(right)
    compiled(tiles.add_outputs, 9)(*target, places.ctypes.data, across, steps, paired)
    alone = expected if adds else expected - before
    np.testing.assert_allclose(scores, alone, atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(outputs, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("count", "across"), [(2, 16), (64, 112)])
def test_softmax_over_blocks_is_that_over_all(count: int, across: int, paired: bool) -> None:
    blocks = [4 * numbers(seed, count, across) for seed in (0, 1)]
    blocks[0][:, 0] = -np.inf  # a row that sees nothing in the first block
    blocks[1][0] = -np.inf
    blocks[1][1, 3] = np.nan
    maxima = np.full(across, -np.inf, dtype=np.float32)
    sums, factors = np.zeros((2, across), dtype=np.float32)
    soften, weights = compiled(softmax.soften, 7), np.zeros((0, across))
    for block in blocks:
        scores = block.copy()
        state = [each.ctypes.data for each in (maxima, sums, factors)]
        soften(scores.ctypes.data, count, across, *state, paired)
        found = scores
        if paired:
            bits, found = scores[: count // 2].view(np.uint32), np.empty_like(scores)
            found[0::2] = (bits << np.uint32(16)).view(np.float32)
            found[1::2] = (bits & np.uint32(0xFFFF0000)).view(np.float32)
        weights = np.concatenate([weights * factors, found])
    whole = np.concatenate(blocks).astype(float)
    largest = np.nanmax(whole, axis=0)
    expected = np.exp(whole - largest)
    room = 2**-8 if paired else 2e-6  # differences of up to 20 are rounded to 1e-6
    np.testing.assert_allclose(weights, expected, rtol=room, atol=1e-30)
    np.testing.assert_allclose(sums, expected.sum(0), rtol=1e-5)
    assert np.isnan(weights[:, 3]).sum() == 1  # NaN is not hidden
    np.testing.assert_array_equal(maxima, largest.astype(np.float32))
