"""Our own forward pass computes what the networks that it knows compute, and no others."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.model.oracle.architectures import LLAMA_LIKE, made, prepared

LENGTH = 50
SMALL: dict[str, Any] = {**LLAMA_LIKE, "num_hidden_layers": 3}
ROPE, SHORT = {"rope_theta": 10_000.0}, {"original_max_position_embeddings": 16}


def llama(**options: Any) -> Callable[[], Any]:
    return made("Llama", SMALL, options)


def scaled(kind: str, **options: Any) -> Callable[[], Any]:
    return llama(rope_parameters={"rope_type": kind, "factor": 4.0, **ROPE, **options})


def doubled() -> Any:
    """A network whose second layer does something of its own."""
    network = llama()()
    mlp = network.model.layers[1].mlp
    forward = mlp.forward
    mlp.forward = lambda states: 2 * forward(states)
    return network


def quantized() -> Any:
    class Linear(torch.nn.Linear):
        pass

    network = llama()()
    network.model.layers[0].mlp.down_proj.__class__ = Linear
    return network


OURS: dict[str, Callable[[], Any]] = {
    "llama": llama(),
    "tied": llama(tie_word_embeddings=True),
    "with biases": llama(attention_bias=True, mlp_bias=True),
    "one key head": llama(num_key_value_heads=1),
    "wide heads": llama(head_dim=24),
    "gelu": llama(hidden_act="gelu_pytorch_tanh"),
    "linear": scaled("linear"),
    "llama3": scaled("llama3", **SHORT, low_freq_factor=1.0, high_freq_factor=4.0),
    "yarn": scaled("yarn", **SHORT),
    "mistral": made("Mistral", SMALL, sliding_window=9),
    "qwen2": made("Qwen2", SMALL),
    "qwen3": made("Qwen3", SMALL, head_dim=16),
}
STOCK: dict[str, Callable[[], Any]] = {
    "dynamic": scaled("dynamic"),
    "other activation": llama(hidden_act="relu"),
    "a layer of its own": doubled,
    "not plain layers": quantized,
    "gemma": made("Gemma", SMALL),
    "granite": made("Granite", SMALL, residual_multiplier=0.5),
}


def built(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    network = make().eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            # Larger than at the start of a training, so that a mistake shows; norms are not all 1.
            weight.copy_(torch.rand_like(weight) + 0.5 if "norm" in name else 3 * weight)
            if name.endswith("bias"):
                weight.normal_()
    return network


@pytest.mark.parametrize("name", OURS)
@torch.inference_mode()
def test_logits_are_those_of_the_network(name: str) -> None:
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, SMALL["vocab_size"], LENGTH))
    expected = built(OURS[name])(ids[None], use_cache=False).logits[0]
    model = prepared(built(OURS[name]))
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
        assert isinstance(prepared(built(STOCK[name])).forward, StockForward)


@torch.inference_mode()
def test_the_network_still_computes_by_itself() -> None:
    ids = torch.arange(3, 20)[None]
    expected = built(OURS["qwen2"])(ids).logits
    network: Any = prepared(built(OURS["qwen2"])).network
    network.set_attn_implementation("eager")
    torch.testing.assert_close(network(ids).logits, expected, rtol=1e-4, atol=1e-4)
