"""How a network's keys carry their position is found by experiment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Ministral3Config, Ministral3ForCausalLM

from relquery.model.attention.function import NAME
from relquery.model.cache.rotary import PositionScheme
from relquery.model.networks.adapters.adapt import adapt
from relquery.model.networks.positions import probe_positions
from tests.model.oracle.architectures import ALL, CONTEXT, FALCON, build

# By network and layer: rotary dimensions and whether they are interleaved; None: no position.
RELOCATABLE: dict[str, list[tuple[int, bool] | None]] = {
    "llama": [(8, False)] * 2,
    "qwen3": [(8, False)] * 2,
    "mistral": [(8, False)] * 2,
    "gemma2": [(8, False)] * 2,
    "gemma3": [(8, False)] * 2,
    "phi3": [(8, False)] * 2,
    "phi3_partial": [(12, False)] * 2,  # of 16
    "gpt_neox": [(2, False)] * 2,  # of 8
    "gpt_neox_partial": [(4, False)] * 2,  # of 16
    "cohere": [(8, True)] * 2,
    "smollm3": [(8, False)] * 3 + [None],
    "linear": [(8, False)] * 2,
    "yarn": [(8, False)] * 2,
    "llama3": [(8, False)] * 2,
    "dynamic": [(8, False)] * 2,
    "bloom": [None] * 2,
    "mpt": [None] * 2,
    **dict.fromkeys(FALCON, [(8, False)] * 2),
}
FIXED = ["gpt2", "opt", "longrope"]


def on_our_attention(network: Any) -> Any:
    """What `prepare` does, without its checks."""
    if not adapt(network):
        network.set_attn_implementation(NAME)
    return network


def forms(scheme: PositionScheme) -> list[tuple[int, bool] | None]:
    """Rotary dimensions and layout by layer."""
    return [
        rotary and (2 * len(rotary.frequencies), rotary.interleaved) for rotary in scheme.layers
    ]


def test_every_network_is_probed() -> None:
    assert {*RELOCATABLE, *FIXED} == {*ALL}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", RELOCATABLE)
def test_rotary_and_position_free_layers_are_told_apart(name: str, dtype: torch.dtype) -> None:
    scheme = probe_positions(on_our_attention(build(name).to(dtype)))
    assert scheme.relocatable
    assert forms(scheme) == RELOCATABLE[name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FIXED)
def test_learned_positions_and_changing_frequencies_are_refused(
    name: str, dtype: torch.dtype
) -> None:
    assert not probe_positions(on_our_attention(build(name).to(dtype))).relocatable


def test_dynamic_ntk_is_refused_only_beyond_the_context_that_the_network_declares() -> None:
    network = on_our_attention(build("dynamic"))
    assert probe_positions(network, CONTEXT).relocatable
    assert not probe_positions(network, 2 * CONTEXT).relocatable


def test_longrope_is_refused_only_beyond_its_original_context() -> None:
    network = on_our_attention(build("longrope"))
    assert probe_positions(network, 64).relocatable
    assert not probe_positions(network, 65).relocatable


@pytest.mark.parametrize(("name", "context"), [("dynamic", 2 * CONTEXT), ("longrope", CONTEXT)])
def test_a_probe_leaves_changing_frequencies_as_they_were(name: str, context: int) -> None:
    network = on_our_attention(build(name))
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    probe_positions(network, context)
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
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=256,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    )
    torch.manual_seed(0)
    scheme = probe_positions(on_our_attention(LlamaForCausalLM(config).eval()))
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
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": None}
    config: Any = Ministral3Config(
        vocab_size=97, max_position_embeddings=256, rope_parameters=rope, **shape, **heads
    )
    torch.manual_seed(0)
    network = on_our_attention(Ministral3ForCausalLM(config).eval())
    assert probe_positions(network).relocatable == relocatable
