"""How a network's keys carry their position is found by experiment."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relquery.model.torch_runtime.adapters import adapt
from relquery.model.torch_runtime.attention import NAME
from relquery.model.torch_runtime.cache import PositionScheme
from relquery.model.torch_runtime.positions import probe_positions
from tests.model.oracle.architectures import ALL, CONTEXT, FALCON, LLAMA_LIKE, build, made

# By network and layer: rotary dimensions and whether they are interleaved; None: no position.
RELOCATABLE: dict[str, list[tuple[int, bool] | None]] = {
    **dict.fromkeys(["llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3"], [(8, False)] * 2),
    **dict.fromkeys(["linear", "yarn", "llama3", "dynamic", *FALCON], [(8, False)] * 2),
    **dict.fromkeys(["bloom", "mpt"], [None] * 2),
    "phi3_partial": [(12, False)] * 2,  # of 16
    "gpt_neox": [(2, False)] * 2,  # of 8
    "gpt_neox_partial": [(4, False)] * 2,  # of 16
    "cohere": [(8, True)] * 2,
    "smollm3": [(8, False)] * 3 + [None],
}
HALVES = [torch.bfloat16, torch.float16]
FIXED = ["gpt2", "opt", "longrope"]


def on_our_attention(network: Any) -> Any:
    """What `prepare` does, without its checks."""
    if not adapt(network):
        network.set_attn_implementation(NAME)
    return network


def forms(scheme: PositionScheme) -> list[tuple[int, bool] | None]:
    """Rotary dimensions and layout by layer."""
    return [
        None if each is None else (2 * len(each.frequencies), each.interleaved)
        for each in scheme.layers
    ]


def test_every_network_is_probed() -> None:
    assert {*RELOCATABLE, *FIXED} == {*ALL}


@pytest.mark.parametrize(
    "dtype", [torch.float32, *(pytest.param(each, marks=pytest.mark.long) for each in HALVES)]
)
def test_layers_that_rotate_or_have_no_position_are_told_from_those_that_cannot_be_moved(
    dtype: torch.dtype,
) -> None:
    for name in ALL:
        scheme = probe_positions(on_our_attention(build(name).to(dtype)))
        assert scheme.relocatable == (name not in FIXED), name
        if name not in FIXED:
            assert forms(scheme) == RELOCATABLE[name], name


def test_rounding_hides_no_position() -> None:
    for name in ("llama", "cohere", "smollm3", "bloom", "gpt2"):
        scheme = probe_positions(on_our_attention(build(name).bfloat16()))
        assert scheme.relocatable == (name not in FIXED)


@pytest.mark.parametrize(("name", "most"), [("dynamic", CONTEXT), ("longrope", 64)])
def test_changing_frequencies_are_refused_beyond_the_original_context_and_stay_as_they_were(
    name: str, most: int
) -> None:
    network = on_our_attention(build(name))
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    assert probe_positions(network, most).relocatable
    assert not probe_positions(network, 2 * most if name == "dynamic" else 65).relocatable
    assert not probe_positions(network, 2 * CONTEXT).relocatable
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())


def test_layer_types_with_their_own_frequencies_are_told_apart() -> None:
    network = on_our_attention(build("gemma3"))
    sliding, full = probe_positions(network).layers
    assert sliding is not None
    assert full is not None
    rotary = network.model.rotary_emb
    assert torch.equal(sliding.frequencies, rotary.sliding_attention_inv_freq)
    assert torch.equal(full.frequencies, rotary.full_attention_inv_freq)


def test_layers_that_rotate_alike_share_their_tables() -> None:
    first, second = probe_positions(on_our_attention(build("llama"))).layers
    assert first is second


@pytest.mark.parametrize("context", [1, 2, 131_072, 1 << 20, 10_000_000])
def test_angles_near_the_end_of_a_long_context_may_be_coarse(context: int) -> None:
    rope = {"rope_type": "default", "rope_theta": 500_000.0}
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2}
    long = {"max_position_embeddings": context, "rope_parameters": rope}
    torch.manual_seed(0)
    scheme = probe_positions(on_our_attention(made("Llama", LLAMA_LIKE, sizes, long)().eval()))
    assert scheme.relocatable
    assert forms(scheme) == [(128, False)] * 2 if context > 1 else [None] * 2


def test_a_network_whose_keys_overflow_is_refused() -> None:
    network = build("llama")
    network.model.layers[1].self_attn.k_proj.weight.data.fill_(torch.inf)
    assert not probe_positions(on_our_attention(network)).relocatable


@pytest.mark.parametrize(("beta", "relocatable"), [(0.5, False), (0.0, True)])
def test_queries_that_grow_with_their_position_cannot_be_moved(
    beta: float, relocatable: bool
) -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": beta,
    }
    heads = {"head_dim": 8, "sliding_window": None}
    torch.manual_seed(0)
    network = on_our_attention(made("Ministral3", LLAMA_LIKE, heads, rope_parameters=rope)().eval())
    assert probe_positions(network).relocatable == relocatable
