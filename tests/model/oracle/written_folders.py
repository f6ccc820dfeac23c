"""A folder of transformers in few bits, number by number as AutoGPTQ, AutoAWQ and
compressed-tensors lay it out, and the folder of the numbers that it then holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
LEFT = ("embed", "lm_head", "norm", "mlp.gate.")
"""Parts of the names of weights that usually stay as they are."""
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Form:
    """How matrices are coded."""

    layout: str
    """gptq, gptq_v2, awq, pack-quantized or int-quantized."""
    bits: int = 4
    group: int = -1
    """Inputs of a group; -1 for all."""
    symmetric: bool = False
    ordered: bool = False
    """Whether inputs are in groups out of turn."""
    scales: torch.dtype = torch.float16
    plain_zeros: bool = False
    """Of compressed-tensors: whether zero points are not packed, as in older files."""


@dataclass(frozen=True)
class Codes:
    """A matrix. codes: (outputs, inputs) from 0. scales, zeros: (outputs, groups). groups: of
    inputs."""

    codes: np.ndarray[Any, Any]
    scales: torch.Tensor
    zeros: np.ndarray[Any, Any]
    groups: np.ndarray[Any, Any]

    def numbers(self) -> np.ndarray[Any, Any]:
        scales = self.scales.float().numpy()[:, self.groups]
        return np.asarray((self.codes - self.zeros[:, self.groups]).astype(np.float32) * scales)


def coded(weight: np.ndarray[Any, Any], form: Form, seed: int) -> Codes:
    """A matrix rounded to codes."""
    inputs = weight.shape[1]
    size = inputs if form.group < 0 else form.group
    groups = np.arange(inputs) // size
    if form.ordered:
        groups = np.random.default_rng(seed).permutation(groups)
    most = 2**form.bits - 1
    held = [weight[:, groups == each] for each in range(groups.max() + 1)]
    low = np.stack([np.minimum(each.min(1), 0) for each in held], axis=1)
    high = np.stack([np.maximum(each.max(1), 0) for each in held], axis=1)
    if form.symmetric:
        high = np.maximum(high, -low)
        low = -high
    scales = torch.from_numpy((high - low) / most + 1e-6).to(form.scales)
    rounded = scales.float().numpy()
    middle = np.full(low.shape, 2 ** (form.bits - 1))
    zeros = middle if form.symmetric else np.clip(np.rint(-low / rounded), 0, most).astype(int)
    codes = np.rint(weight / rounded[:, groups]).astype(int) + zeros[:, groups]
    return Codes(np.clip(codes, 0, most), scales, zeros, groups)


def words(
    codes: np.ndarray[Any, Any], bits: int, order: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Codes (rows, count) in words, the first in the lowest bits, or as an order says."""
    each = 32 // bits
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each))).astype(np.uint32)
    grouped = padded.reshape(len(codes), -1, each)
    found = np.zeros(grouped.shape[:2], np.uint32)
    for at, which in enumerate(order or range(each)):
        found |= grouped[..., which] << np.uint32(bits * at)
    return torch.from_numpy(found.view(np.int32))


def _gptq(found: Codes, form: Form) -> Tensors:
    zeros = words(found.zeros.T, form.bits).numpy().view(np.uint32)
    if form.layout == "gptq":
        zeros = zeros - np.uint32(sum(1 << at for at in range(0, 32, form.bits)))
    return {
        "qweight": words(found.codes, form.bits).T.contiguous(),
        "qzeros": torch.from_numpy(zeros.view(np.int32).copy()),
        "scales": found.scales.T.contiguous(),
        "g_idx": torch.from_numpy(found.groups.astype(np.int32)),
    }


def _awq(found: Codes, form: Form) -> Tensors:
    return {
        "qweight": words(found.codes.T, form.bits, _AWQ_ORDER),
        "qzeros": words(found.zeros.T, form.bits, _AWQ_ORDER),
        "scales": found.scales.T.contiguous(),
    }


def _packed(found: Codes, form: Form) -> Tensors:
    tensors = {
        "weight_packed": words(found.codes, form.bits),
        "weight_scale": found.scales,
        "weight_shape": torch.tensor(found.codes.shape),
    }
    if form.ordered:
        tensors["weight_g_idx"] = torch.from_numpy(found.groups.astype(np.int32))
    if form.plain_zeros:
        plain = found.zeros - 2 ** (form.bits - 1)
        tensors["weight_zero_point"] = torch.from_numpy(plain.astype(np.int8))
    elif not form.symmetric:
        tensors["weight_zero_point"] = words(found.zeros.T, form.bits).T.contiguous()
    return tensors


def _plain(found: Codes, form: Form) -> Tensors:
    tensors = {
        "weight": torch.from_numpy((found.codes - 128).astype(np.int8)),
        "weight_scale": found.scales,
        "input_scale": torch.ones(1),
    }
    if not form.symmetric:
        tensors["weight_zero_point"] = torch.from_numpy((found.zeros - 128).astype(np.int8))
    return tensors


_WRITERS: dict[str, Callable[[Codes, Form], Tensors]] = {
    "gptq": _gptq,
    "gptq_v2": _gptq,
    "awq": _awq,
    "pack-quantized": _packed,
    "int-quantized": _plain,
}


def said(form: Form) -> dict[str, Any]:
    """The quantization_config of a folder."""
    usual = {"bits": form.bits, "group_size": form.group}
    if form.layout == "awq":
        more = {"quant_method": "awq", "zero_point": True, "version": "gemm"}
        return usual | more | {"modules_to_not_convert": None}
    if form.layout.startswith("gptq"):
        more = {"quant_method": "gptq", "sym": form.symmetric, "desc_act": form.ordered}
        return usual | more | {"checkpoint_format": form.layout}
    weights = {
        "num_bits": form.bits,
        "type": "int",
        "symmetric": form.symmetric,
        "strategy": "channel" if form.group < 0 else "group",
        "group_size": None if form.group < 0 else form.group,
        "actorder": "group" if form.ordered else None,
        "dynamic": False,
        "observer": "minmax",
    }
    activations = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}
    scheme = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": activations if form.layout == "int-quantized" else None,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form.layout,
        "config_groups": {"group_0": scheme},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


def write_folders(
    network: Any, folder: Path, form: Form, left: Sequence[str] = LEFT
) -> tuple[Path, Path]:
    """A network in few bits, and the numbers that this holds. left: parts of the names of weights
    that stay as they are."""
    few, whole = folder / "few", folder / "whole"
    network.save_pretrained(whole)
    shutil.copytree(whole, few)
    numbers = load_file(whole / "model.safetensors")
    held: Tensors = {}
    for seed, (name, weight) in enumerate(sorted(numbers.items())):
        module, _, what = name.rpartition(".")
        if what != "weight" or any(each in name for each in left):
            held[name] = weight
            continue
        found = coded(weight.numpy(), form, seed)
        numbers[name] = torch.from_numpy(found.numbers())
        written = _WRITERS[form.layout](found, form)
        held |= {f"{module}.{each}": tensor for each, tensor in written.items()}
    save_file(numbers, whole / "model.safetensors", {"format": "pt"})
    save_file(held, few / "model.safetensors", {"format": "pt"})
    config = few / "config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"quantization_config": said(form)})
    )
    return few, whole
