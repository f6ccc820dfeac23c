"""Networks with an adapter get their batch at each pass, and forget it.

What they compute is compared with the stock networks in test_scored.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.networks.adapters.adapt import adapt
from tests.model.oracle.architectures import ALIBI, FALCON, NETWORKS, build, quick_of


def step(network: Any, cache: KVCache) -> None:
    """Compute three tokens."""
    slots = np.arange(3)
    chunk = Chunk(0, slots.astype(np.int32) + 5, 0, (), slots)
    batch = PackedBatch([chunk], cache, share=True, device=torch.device("cpu"))
    ids = torch.from_numpy(chunk.tokens).long()[None]
    positions = torch.from_numpy(batch.positions)[None]
    with torch.inference_mode():
        network(input_ids=ids, position_ids=positions, use_cache=False, batch=batch)


@quick_of([*ALIBI, *FALCON], "bloom", "mpt", "falcon_grouped")
def test_a_pass_says_that_it_lacks_a_batch_and_forgets_one_when_it_fails(name: str) -> None:
    adapted = build(name)
    assert adapt(adapted)
    with pytest.raises(ModelError, match="batch"):
        adapted(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False)
    with pytest.raises((IndexError, RuntimeError)):
        step(adapted, KVCache(1))  # slots that do not exist
    assert all(getattr(module, "batch", None) is None for module in adapted.modules())


@quick_of([*ALIBI, *FALCON], "mpt")
def test_no_batch_outlives_its_pass(name: str) -> None:
    adapted, cache = build(name), KVCache(9)
    assert adapt(adapted)
    step(adapted, cache)
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_networks_that_take_an_attention_function_need_no_adapter() -> None:
    assert not any(adapt(build(name)) for name in NETWORKS)
