"""The largest number of each row is torch's."""

from __future__ import annotations

from math import isfinite

import pytest
import torch

from relquery.engine.executor import NOT_FINITE
from relquery.model.kernels.largest import find_largest

pytestmark = pytest.mark.long


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
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
    expected = [
        row.index(max(row)) if isfinite(max(row)) else NOT_FINITE
        for row in numbers.float().tolist()
    ]
    assert find_largest(numbers).tolist() == expected
    assert find_largest(wide).tolist() == expected
    assert find_largest(numbers[:0]).tolist() == []
