"""Numbers of a kind, read and rounded, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relquery.model.kernels.arguments import KINDS
from relquery.model.kernels.instructions import llvm, vectors
from tests.model.kernels.harness import INSTRUCTIONS, compiled

pytestmark = pytest.mark.long
HALVES = 1 + np.arange(64) * 2.0**-9  # every other one is halfway between two bfloat16 numbers
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 65_519.0, 65_520.0, 6e-8, 2e-38]
NUMBERS = np.array([*HALVES, *-HALVES, *ODD, *np.random.default_rng(0).normal(size=64)])
SMALLEST = 2.0**-126


@INSTRUCTIONS
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_rounded_and_read_like_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype, instructions: bool
) -> None:
    monkeypatch.setattr(llvm, "PAIRS", instructions)
    narrow, widen = compiled(vectors.narrow, 4), compiled(vectors.widen, 4)
    given = torch.from_numpy(NUMBERS.astype(np.float32))
    expected = given.to(kind)
    for count in (1, 15, 16, 17, len(given)):
        rounded, read = torch.zeros(len(given), dtype=kind), torch.zeros(len(given))
        narrow(rounded.data_ptr(), given.data_ptr(), KINDS[kind], count)
        widen(read.data_ptr(), rounded.data_ptr(), KINDS[kind], count)
        torch.testing.assert_close(
            rounded[:count], expected[:count], rtol=0, atol=0, equal_nan=True
        )
        torch.testing.assert_close(read, rounded.float(), rtol=0, atol=0, equal_nan=True)
        assert not rounded[count:].any()


@INSTRUCTIONS
def test_numbers_below_the_smallest_normal_one_are_rounded_or_become_zero(
    monkeypatch: pytest.MonkeyPatch, instructions: bool
) -> None:
    monkeypatch.setattr(llvm, "PAIRS", instructions)
    given = torch.tensor([0.75 * SMALLEST, -0.75 * SMALLEST])
    rounded = torch.ones(2, dtype=torch.bfloat16)
    compiled(vectors.narrow, 4)(rounded.data_ptr(), given.data_ptr(), llvm.BFLOAT16, 2)
    assert rounded.tolist() in (given.bfloat16().tolist(), [0.0, 0.0])


@INSTRUCTIONS
@pytest.mark.parametrize("width", [32, 64, 160])
@pytest.mark.parametrize("rows", [4, 8])
def test_dot_products_of_pairs_are_those_of_their_numbers(
    monkeypatch: pytest.MonkeyPatch, instructions: bool, width: int, rows: int
) -> None:
    monkeypatch.setattr(llvm, "PAIRS", instructions and llvm.PAIRS)
    generator = torch.Generator().manual_seed(width + rows)
    query = torch.randn(width, generator=generator).bfloat16()
    keys = torch.randn(rows, width, generator=generator).bfloat16()
    places = np.array([key.data_ptr() for key in keys])
    expected = keys.double() @ query.double()
    wide, scores = query.float(), torch.full((2, rows, 2), 7.0)  # every other one is another's
    given = places.ctypes.data, width
    compiled(vectors.dots_of_pairs, 5, rows)(scores[0].data_ptr(), 8, query.data_ptr(), *given)
    compiled(vectors.dots, 6, rows)(scores[1].data_ptr(), 8, wide.data_ptr(), *given, llvm.BFLOAT16)
    for found in scores:
        torch.testing.assert_close(found[:, 0].double(), expected, rtol=0, atol=1e-4)
        assert (found[:, 1] == 7).all()
