"""Our own forward pass computes what the networks that it knows compute, and no others."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward.llama import LlamaForward
from relquery.model.forward.stock import StockForward
from tests.model.oracle.architectures import VOCABULARY, networks_of, prepared, varied

LENGTH = 50
OURS, STOCK = networks_of("ours"), networks_of("stock")


def doubled() -> Any:
    """A network whose second layer does something of its own."""
    network = OURS["llama"]()
    mlp = network.model.layers[1].mlp
    forward = mlp.forward
    mlp.forward = lambda states: 2 * forward(states)
    return network


def quantized() -> Any:
    class Linear(torch.nn.Linear):
        pass

    network = OURS["llama"]()
    network.model.layers[0].mlp.down_proj.__class__ = Linear
    return network


STOCK |= {"a layer of its own": doubled, "not plain layers": quantized}


@pytest.mark.parametrize("name", OURS)
@torch.inference_mode()
def test_logits_are_those_of_the_network(name: str) -> None:
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, VOCABULARY, LENGTH))
    expected = varied(OURS[name])(ids[None], use_cache=False).logits[0]
    model = prepared(varied(OURS[name]))
    assert isinstance(model.forward, LlamaForward)
    for cuts in ((), (1,), (20, 21, 40)):
        slots = np.random.default_rng(0).permutation(LENGTH)
        slots[::2] = SCRATCH + slots[::2] if not cuts else slots[::2]
        cache, scratch = KVCache(LENGTH), KVCache(LENGTH)
        for start, stop in zip((0, *cuts), (*cuts, LENGTH), strict=True):
            context = (Segment(slots[:start]),) if start else ()
            chunk = Chunk(0, ids[start:stop].int().numpy(), start, context, slots[start:stop])
            batch = PackedBatch([chunk], cache, True, torch.device("cpu"), scratch=scratch)
            wanted = list(range(stop - start))[:: 1 + start % 2]
            logits = model.forward(ids[start:stop].numpy(), batch, wanted).rows
            size = float(expected.abs().max())
            assert float((logits - expected[start:stop][wanted]).abs().max()) < 2e-5 * size


@pytest.mark.parametrize("name", STOCK)
def test_other_networks_keep_their_own(name: str) -> None:
    """Without a warning, but for the one that only its logits tell from a Llama."""
    is_told = name == "a layer of its own"
    with pytest.warns(UserWarning, match="gives other logits") if is_told else nullcontext():
        assert isinstance(prepared(varied(STOCK[name])).forward, StockForward)


@torch.inference_mode()
def test_the_network_still_computes_by_itself() -> None:
    ids = torch.arange(3, 20)[None]
    expected = varied(OURS["qwen2"])(ids).logits
    network: Any = prepared(varied(OURS["qwen2"])).network
    network.set_attn_implementation("eager")
    torch.testing.assert_close(network(ids).logits, expected, rtol=1e-4, atol=1e-4)
