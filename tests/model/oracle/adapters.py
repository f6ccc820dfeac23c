"""Adapters as PEFT writes them, and networks that they are merged into."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
JOINED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
"""Names of the matrices that adapters change, in most families and in Phi."""
_BEFORE = "base_model.model."


def write_adapter(
    folder: Path,
    shapes: Mapping[str, Sequence[int]],
    targets: Sequence[str] = ALL,
    *,
    seed: int = 1,
    by: float = 0.3,
    **settings: Any,
) -> Path:
    """A folder with a random adapter. shapes: of a network's weights. by: how large its changes
    are. settings: of its config, beside the usual ones; ranks follow from them."""
    told: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"} | settings
    told["target_modules"] = list(targets)
    rng = np.random.default_rng(seed)
    numbers = {}
    for name, shape in shapes.items():
        path, _, kind = name.rpartition(".")
        if kind == "weight" and path.rpartition(".")[2] in targets:
            rank = _of_pattern(told.get("rank_pattern", {}), path, told["r"])
            outputs, inputs = shape
            first = rng.normal(size=(rank, inputs)) / inputs**0.5
            second = rng.normal(size=(outputs, rank)) * by
            numbers[f"{_BEFORE}{path}.lora_A.weight"] = first.astype(np.float32)
            numbers[f"{_BEFORE}{path}.lora_B.weight"] = second.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(numbers, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return folder


def shapes_of(network: Any) -> dict[str, tuple[int, ...]]:
    """Of a network's weights, by name."""
    return {name: tuple(weight.shape) for name, weight in network.named_parameters()}


def merge(network: Any, folder: Path) -> Any:
    """A network with an adapter merged into its weights, in place: W + scale * B @ A."""
    told = json.loads((folder / "adapter_config.json").read_text())
    numbers = load_file(folder / "adapter_model.safetensors")
    weights = dict(network.named_parameters())
    for name in (each for each in numbers if ".lora_A." in each):
        path = name.removeprefix(_BEFORE).removesuffix(".lora_A.weight")
        alpha = _of_pattern(told.get("alpha_pattern", {}), path, told["lora_alpha"])
        first, second = numbers[name], numbers[name.replace("lora_A", "lora_B")]
        scale = alpha / (len(first) ** 0.5 if told.get("use_rslora") else len(first))
        weight = weights[f"{path}.weight"].detach().numpy()  # the network's own memory
        weight += (scale * second.astype(float) @ first.astype(float)).astype(np.float32)
    return network


def _of_pattern(patterns: Mapping[str, Any], path: str, usual: Any) -> Any:
    """As PEFT's get_pattern_key chooses: the first that matches the end of a path."""
    return next((v for k, v in patterns.items() if re.match(rf"(.*\.)?({k})$", path)), usual)
