"""The network of a GGUF file, in the words of config.json and of safetensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from relquery.errors import UnsupportedNetworkError
from relquery.model.formats.config import ConfigReader
from relquery.model.formats.gguf import GgufFile
from relquery.model.formats.safetensors import Weight, Weights, narrow

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
_OF_GEMMA = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_OF_KINDS: dict[str, dict[str, str]] = {
    "gemma2": _OF_GEMMA,
    "gemma3": _OF_GEMMA,
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
}
"""Names by kind of network where they differ."""
_INTERLEAVED = {"llama", "granite", "smollm3"}
"""Kinds whose files hold the rows of queries and keys in another order: numbers that are rotated
together follow one another."""
_OF_ROTATION = {
    "rope_freqs.weight": "divisors",
    "rope_factors_short.weight": "short_factor",
    "rope_factors_long.weight": "long_factor",
}
_HALF_OF = {"gemma2": 46, "gemma3": 62}
"""Layers of the networks of 27 billion, whose scores are scaled by the width over all heads."""


def read_network(file: GgufFile, name: str) -> tuple[ConfigReader, Weights]:
    """The configuration and the weights of a file. Raises ModelError, and UnsupportedNetworkError
    for what is not computed here."""
    kind = file.metadata.get("general.architecture")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnsupportedNetworkError(
            f"Model '{name}' cannot run in relquery's own runtime: its GGUF file is of the kind "
            f"'{kind}', and the engine computes {', '.join(sorted(_KINDS))}."
        )
    told = {
        key.removeprefix(f"{kind}."): value
        for key, value in file.metadata.items()
        if key.startswith(f"{kind}.")
    }
    settings = ConfigReader(name, told, "GGUF file")
    weights = dict(file.weights)
    factors = {
        said: weights.pop(each).floats().tolist()
        for each, said in _OF_ROTATION.items()
        if each in weights
    }
    settings_of_model = _common(settings, weights, factors) | _KINDS[kind](settings)
    settings.end(_INCIDENTAL)
    heads = settings_of_model["num_attention_heads"], settings_of_model["num_key_value_heads"]
    return ConfigReader(name, settings_of_model, "GGUF file"), Weights(
        _renamed(weights, kind, heads), file.mapped
    )


def _common(
    told: ConfigReader, weights: Mapping[str, Weight], factors: Mapping[str, list[float]]
) -> dict[str, Any]:
    """What all kinds say."""
    embedding = weights.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise told.refused("its GGUF file has no token_embd.weight")
    layers = {said.split(".")[1] for said in weights if said.startswith("blk.")}
    if told.integer("block_count") != len(layers):
        raise told.refused(f"block_count is not {len(layers)}, of which its GGUF file has weights")
    hidden, heads = told.integer("embedding_length"), told.integer("attention.head_count")
    width = told.integer("attention.key_length", max(1, hidden // heads))
    told.expect("attention.value_length", width)
    told.expect("attention.causal", True)
    context = told.integer("context_length")
    rotated = told.integer("rope.dimension_count", width)
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": told.integer("block_count"),
        "intermediate_size": told.integer("feed_forward_length", 1),
        "num_attention_heads": heads,
        "num_key_value_heads": told.integer("attention.head_count_kv", heads),
        "head_dim": width,
        "vocab_size": embedding.shape[0],
        "max_position_embeddings": context,
        "rms_norm_eps": told.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": told.number("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in weights,
    }
    rope = _rope(told, factors, context)
    if rotated != width:
        rope = {"rope_type": "default"} | rope | {"partial_rotary_factor": rotated / width}
    return config | ({"rope_scaling": rope} if rope else {})


def _rope(told: ConfigReader, factors: Mapping[str, list[float]], context: int) -> dict[str, Any]:
    """How the frequencies of rotary embeddings are changed; nothing if they are not."""
    factor = told.number("rope.scaling.factor", told.number("rope.scale_linear", 1.0))
    kind = told.text("rope.scaling.type", "none" if factor == 1.0 else "linear")
    before = told.integer("rope.scaling.original_context_length", context)
    attention = told.number("rope.scaling.attn_factor", 1.0)
    if "short_factor" in factors:
        return {
            "rope_type": "longrope",
            "attention_factor": attention,
            "original_max_position_embeddings": before,
            **factors,
        }
    if attention != 1.0:
        raise told.refused(f"rope.scaling.attn_factor is {attention}")
    if factors:
        if kind not in ("none", "llama3"):
            raise told.refused(f"its frequencies are divided, and scaled by '{kind}'")
        return {"rope_type": "divided", **factors}
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": before,
        }
    raise told.refused(f"rope.scaling.type is '{kind}'")


def _llama(told: ConfigReader) -> dict[str, Any]:
    del told
    return {"model_type": "llama"}


def _granite(told: ConfigReader) -> dict[str, Any]:
    return {
        "model_type": "granite",
        "attention_multiplier": told.number("attention.scale", 1.0),
        "embedding_multiplier": told.number("embedding_scale", 1.0),
        "residual_multiplier": told.number("residual_scale", 1.0),
        "logits_scaling": told.number("logit_scale", 1.0),
    }


def _phi3(told: ConfigReader) -> dict[str, Any]:
    window = told.integer("attention.sliding_window", 0, least=0)
    return {"model_type": "phi3", "sliding_window": window}


def _qwen(kind: str) -> Callable[[ConfigReader], dict[str, Any]]:
    return lambda told: {"model_type": kind}


def _qwen3_moe(told: ConfigReader) -> dict[str, Any]:
    return {
        "model_type": "qwen3_moe",
        "num_experts": told.integer("expert_count"),
        "num_experts_per_tok": told.integer("expert_used_count"),
        "moe_intermediate_size": told.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
    }


def _smollm3(told: ConfigReader) -> dict[str, Any]:
    del told
    return {"model_type": "smollm3", "no_rope_layer_interval": 4}


def _gemma2(told: ConfigReader) -> dict[str, Any]:
    return _gemma(told, "gemma2") | {
        "model_type": "gemma2",
        "attn_logit_softcapping": told.number("attn_logit_softcapping", 50.0),
    }


def _gemma3(told: ConfigReader) -> dict[str, Any]:
    told.expect("attn_logit_softcapping", 0.0)
    return _gemma(told, "gemma3") | {
        "model_type": "gemma3_text",
        "rope_local_base_freq": told.number("rope.freq_base_swa", 10_000.0),
        "sliding_window_pattern": told.integer("attention.sliding_window_pattern", 6),
    }


def _gemma(told: ConfigReader, kind: str) -> dict[str, Any]:
    heads, hidden = told.integer("attention.head_count"), told.integer("embedding_length")
    scalar = told.integer("attention.key_length", max(1, hidden // heads))
    if told.integer("block_count") == _HALF_OF[kind]:
        scalar = hidden // heads
    bound = "final_logit_softcapping"
    usual = 30.0 if kind == "gemma2" else 0.0
    return {
        "query_pre_attn_scalar": scalar,
        "sliding_window": told.integer("attention.sliding_window", 4096),
        bound: told.number(bound, usual),
    }


_KINDS: dict[str, Callable[[ConfigReader], dict[str, Any]]] = {
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "granite": _granite,
    "llama": _llama,
    "phi3": _phi3,
    "qwen2": _qwen("qwen2"),
    "qwen3": _qwen("qwen3"),
    "qwen3moe": _qwen3_moe,
    "smollm3": _smollm3,
}
_INCIDENTAL = frozenset({"vocab_size", "rope.scaling.finetuned", "tensor_data_layout"})
"""Keys that say nothing of what is computed, or what the weights say, too."""


def _renamed(weights: Mapping[str, Weight], kind: str, heads: tuple[int, int]) -> dict[str, Weight]:
    """Weights by the names that safetensors have for them."""
    names, renamed = _NAMES | _OF_KINDS.get(kind, {}), dict[str, Weight]()
    for said, weight in weights.items():
        layer, _, rest = said.removeprefix("blk.").partition(".")
        prefix = f"model.layers.{layer}." if said.startswith("blk.") else ""
        what, _, ending = (rest if prefix else said).rpartition(".")
        if what in _EXPERTS and len(weight.shape) == 3:
            renamed |= {
                f"{prefix}mlp.experts.{number}.{_EXPERTS[what]}.weight": each
                for number, each in enumerate(_each_of(weight))
            }
            continue
        name = f"{prefix}{names[what]}.{ending}" if what in names else said
        renamed[name] = _as_safetensors(weight, what, kind, heads)
    return renamed


def _as_safetensors(weight: Weight, what: str, kind: str, heads: tuple[int, int]) -> Weight:
    """A weight as safetensors hold it. heads: of queries, and of keys."""
    if kind.startswith("gemma") and what.endswith("norm"):
        # Files hold what is multiplied with; the network adds 1.
        return Weight(0, weight.shape, narrow(weight.floats() - np.float32(1), 0))
    if kind in _INTERLEAVED and what in ("attn_q", "attn_k"):
        return replace(weight, turned=heads[what == "attn_k"])
    return weight


def _each_of(weight: Weight) -> list[Weight]:
    """The matrices of several."""
    count, *shape = weight.shape
    size = len(weight.bytes) // max(count, 1)
    return [
        Weight(weight.kind, tuple(shape), weight.bytes[index * size : (index + 1) * size])
        for index in range(count)
    ]
