"""A cache that no memory holds is refused with what to lower."""

from __future__ import annotations

import pytest
import torch

from relquery.errors import ConfigError
from relquery.model.cache.device import KVCache


def test_a_cache_that_no_memory_holds_is_told() -> None:
    cache = KVCache(10**14)
    states = torch.zeros(1, 2, 64)
    with pytest.raises(ConfigError, match="Lower cache_tokens"):
        cache.write(0, torch.zeros(1, dtype=torch.int64), states, states)
