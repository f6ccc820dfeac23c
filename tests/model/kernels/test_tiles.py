"""Products of small matrices and softmax in blocks, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from relquery.model.kernels.attention import softmax
from relquery.model.kernels.instructions import llvm, tiles
from tests.model.kernels.harness import INSTRUCTIONS, compiled

pytestmark = pytest.mark.long
Array = npt.NDArray[Any]


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


@INSTRUCTIONS
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
    monkeypatch: pytest.MonkeyPatch,
    instructions: bool,
    paired: bool,
    rows: int,
    across: int,
    count: int,
    fetched: int,
    adds: int,
) -> None:
    monkeypatch.setattr(llvm, "PAIRS", instructions)
    one, many, before = numbers(0, rows, count), numbers(1, count, across), numbers(2, rows, across)
    given = [one, many, np.ascontiguousarray(one.T)]
    if paired:
        (left, one), (right, many) = as_pairs(one, 1), as_pairs(many, 0)
        given = [left, right, np.ascontiguousarray(left.T)]
    expected = before + one.astype(float) @ many.astype(float)
    steps = count // 2 if paired else count
    scores, outputs = before.copy(), before.copy()
    left, right, turned = given
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
    soften = compiled(softmax.soften, 7)
    weights = np.zeros((0, across))
    for block in blocks:
        scores = block.copy()
        state = [each.ctypes.data for each in (maxima, sums, factors)]
        soften(scores.ctypes.data, count, across, *state, paired)
        found = scores
        if paired:
            bits = scores[: count // 2].view(np.uint32)
            found = np.empty_like(scores)
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
