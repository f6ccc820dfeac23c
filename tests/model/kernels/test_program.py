"""Programs: bodies run in order, on all threads, with what each run is given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relquery.arrays import Int64s
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS
from relquery.model.kernels.program import Program, can_run

ROWS, WIDTH, STAGES = 40, 32, 6

pytestmark = [pytest.mark.long, pytest.mark.skipif(not can_run(), reason="torch has no OpenMP")]


def look_up(tokens: torch.Tensor, source: torch.Tensor, result: torch.Tensor) -> Int64s:
    """Arguments: rows of the source, by their numbers, to the result."""
    a = np.zeros(kernel.ARGUMENTS, dtype=np.int64)
    a[kernel.KIND], a[kernel.ROWS], a[kernel.WIDTH] = KINDS[source.dtype], len(tokens), WIDTH
    a[kernel.SOURCE], a[kernel.RESULT] = source.data_ptr(), result.data_ptr()
    a[kernel.TOKENS] = tokens.data_ptr()
    return a


@pytest.fixture(params=[1, 2, 5])
def some_threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("some_threads")
def test_each_body_sees_all_that_the_ones_before_it_wrote() -> None:
    """Each stage shuffles the rows of the one before, which many threads have written."""
    random = torch.Generator().manual_seed(0)
    states = [torch.zeros(ROWS, WIDTH) for _ in range(STAGES + 1)]
    orders = [torch.randperm(ROWS, generator=random) for _ in range(STAGES)]
    arguments = [
        look_up(order, source, result)
        for order, source, result in zip(orders, states[:-1], states[1:], strict=True)
    ]
    last = STAGES - 1
    program = Program(
        [kernel.LOOK_UP] * STAGES, arguments, [([0], kernel.SOURCE), ([last], kernel.RESULT)]
    )
    for _ in range(300):
        source, result = torch.rand(ROWS, WIDTH, generator=random), torch.empty(ROWS, WIDTH)
        program.run([source.data_ptr(), result.data_ptr()])
        expected = source
        for order in orders:
            expected = expected[order]
        assert torch.equal(result, expected)


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
