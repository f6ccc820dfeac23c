"""A network of transformers as a GGUF file, written by the library `gguf` with its names, as
llama.cpp's converter writes it; and the network with the numbers that the file then holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGUFWriter, quants
from gguf import GGMLQuantizationType as Format

FORMATS = ("F32", "Q8_0", "F16", "Q4_1", "BF16", "Q5_0", "Q4_0", "Q5_1")
"""Those that `gguf` can write, in which matrices take turns."""
_ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
}
_TURNED = ("llama", "granite", "smollm3")
_SCALES_AT: dict[str, dict[int, float]] = {
    "Q2_K": {80: 0.02, 82: 0.03},
    "Q3_K": {108: 0.004},
    "Q4_K": {0: 0.0003, 2: 0.0022},
    "Q5_K": {0: 0.0003, 2: 0.0046},
    "Q6_K": {208: 0.0001},
    "IQ4_NL": {0: 0.002},
    "IQ4_XS": {0: 0.0001},
    "MXFP4": {},
}
"""Where scales are in a block, and such as give weights of a usual size."""


def write_gguf(
    network: Any,
    path: Path,
    tokenizer: Mapping[str, Any] | None = None,
    formats: Sequence[str] = FORMATS,
    said: Mapping[str, Any] | None = None,
    split: int = 0,
) -> None:
    """Write a file, and give the network the numbers that the file holds in few bits.

    said: other values of keys. split: weights of a file, of several; 0 for one file.
    formats: in which matrices take turns. Of those that `gguf` cannot write the bits are random.
    """
    config = network.config
    kind = _ARCHITECTURES.get(config.model_type, config.model_type)
    writer = GGUFWriter(path, kind, split_max_tensors=split)
    keys = {f"{kind}.{key}": value for key, value in _said(config, kind).items()}
    for key, value in (keys | dict(said or {}) | dict(tokenizer or {})).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            (writer.add_uint32 if value < 2**32 else writer.add_uint64)(key, value)
        else:
            writer.add_float32(key, value)
    names = gguf.get_tensor_name_map(
        next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == kind),
        config.num_hidden_layers,
    )
    for factor, factors in _factors(config).items():
        writer.add_tensor(factor, np.array(factors, np.float32))
    turns = cycle(formats)
    is_tied = config.tie_word_embeddings
    with torch.no_grad():
        for name, weight in network.state_dict().items():
            if name == "lm_head.weight" and is_tied:
                continue
            for part, numbers in _parts(name, weight, config):
                written = names.get_name(part, (".weight", ".bias"))
                assert written is not None, part
                block, _ = GGML_QUANT_SIZES[Format[turn := next(turns)]]
                form = turn if weight.dim() > 1 and numbers.shape[-1] % block == 0 else "F32"
                _add(writer, written, numbers, Format[form], config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _parts(name: str, weight: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    """The matrices of experts are one for gates and ups in memory, and two in files."""
    if name.endswith("experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        halves = weight.chunk(2, dim=1)
        return [
            (f"{stem}{part}_proj", half) for part, half in zip(("gate", "up"), halves, strict=True)
        ]
    return [(name, weight)]


def _add(
    writer: GGUFWriter, said: str, weight: torch.Tensor, form: Format, config: Any, kind: str
) -> None:
    numbers = weight.numpy()
    written = _quantised(np.ascontiguousarray(numbers), form)
    held = quants.dequantize(written, form).reshape(numbers.shape)
    weight.copy_(torch.from_numpy(held.copy()))
    if kind.startswith("gemma") and said.endswith("norm.weight"):
        written = (held + np.float32(1)).astype(np.float32)
    if kind in _TURNED and (".attn_q." in said or ".attn_k." in said):
        heads = config.num_attention_heads if "attn_q" in said else config.num_key_value_heads
        shape = written.shape
        halves = written.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
        written = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(shape))
    if not said.endswith((".weight", ".bias")):
        said += ".weight"
    writer.add_tensor(said, written, raw_dtype=form)


def _quantised(numbers: np.ndarray[Any, Any], form: Format) -> np.ndarray[Any, Any]:
    if form.name not in _SCALES_AT:
        return quants.quantize(numbers, form)
    block, size = GGML_QUANT_SIZES[form]
    rng = np.random.default_rng(numbers.size)
    bits = rng.integers(0, 256, (*numbers.shape[:-1], numbers.shape[-1] // block, size), np.uint8)
    for at, scale in _SCALES_AT[form.name].items():
        bits[..., at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    if form.name == "MXFP4":
        bits[..., 0] = 123
    return bits.reshape(*numbers.shape[:-1], -1)


def _said(config: Any, kind: str) -> dict[str, Any]:
    """The keys of a file."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    said = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": rope["rope_theta"],
        "rope.dimension_count": int(width * rope.get("partial_rotary_factor", 1)),
        "vocab_size": config.vocab_size,
    }
    if rope["rope_type"] in ("linear", "yarn"):
        said |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if before := rope.get("original_max_position_embeddings"):
        said["rope.scaling.original_context_length"] = before
    if rope["rope_type"] == "longrope":
        scale = np.log(config.max_position_embeddings / before) / np.log(before)
        said["rope.scaling.attn_factor"] = float(np.sqrt(1 + scale))
    if kind == "granite":
        said |= {
            "attention.scale": config.attention_multiplier,
            "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier,
            "logit_scale": config.logits_scaling,
        }
    if kind.startswith("gemma"):
        said["attention.sliding_window"] = config.sliding_window
    if kind == "gemma3":
        said["attention.sliding_window_pattern"] = 2
    if kind == "gemma2":
        said |= {
            "attn_logit_softcapping": config.attn_logit_softcapping,
            "final_logit_softcapping": config.final_logit_softcapping,
        }
    if kind == "qwen3moe":
        said |= {
            "expert_count": config.num_experts,
            "expert_used_count": config.num_experts_per_tok,
            "expert_feed_forward_length": config.moe_intermediate_size,
        }
    return said


def _factors(config: Any) -> dict[str, list[float]]:
    """What frequencies are divided by, as weights."""
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    if rope["rope_type"] == "longrope":
        return {f"rope_factors_{each}.weight": rope[f"{each}_factor"] for each in ("short", "long")}
    if rope["rope_type"] != "llama3":
        return {}
    width = config.hidden_size // config.num_attention_heads
    lengths = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, width, 2) / width)
    before, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (before / lengths - low) / (high - low)
    mixed = 1 / ((1 - smooth) / factor + smooth)
    found = np.where(lengths < before / high, 1, np.where(lengths > before / low, factor, mixed))
    return {"rope_freqs.weight": found.tolist()}
