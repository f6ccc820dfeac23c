"""Adapters of low rank (LoRA, Hu et al. 2021), read from folders as PEFT writes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery.errors import ModelError
from relquery.model.formats.config import read_json
from relquery.model.formats.safetensors import read_weights

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_READ = {
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
    "init_lora_weights",
}  # fmt: skip
_NOTED = {
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "lora_dropout", "megatron_config", "megatron_core", "loftq_config",
    "eva_config", "corda_config", "lora_ga_config", "qalora_group_size", "ensure_weight_tying",
    # The file of weights tells what these choose.
    "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
}  # fmt: skip
"""Keys that change nothing of what a trained adapter computes."""
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")
"""Ways to begin a training that leave the model's own weights as they are."""
_NAME = re.compile(r"base_model\.model\.(?P<path>.+)\.lora_(?P<side>[AB])\.weight")
_MERGE = "Merge it into its model with PEFT's merge_and_unload(), and open what that saves."
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LowRank:
    """The matrices that an adapter adds to one: second @ first."""

    first: Floats
    """(rank, inputs)"""
    second: Floats
    """(outputs, rank), times the adapter's scale"""


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter."""

    name: str
    base: str
    """The model that it was trained for, as its file says; "" if it does not."""
    key: bytes
    """A digest of 16 bytes of all that it changes."""
    changes: Mapping[str, LowRank]
    """By the path of a matrix, such as model.layers.0.mlp.down_proj."""


def read_lora(folder: Path, name: str) -> Lora:
    """The adapter of a folder. Raises ModelError."""
    told = _read_config(folder, name)
    weights = read_weights(folder, [WEIGHTS])
    sides: dict[str, dict[str, Floats]] = {}
    for each in weights:
        match = _NAME.fullmatch(each)
        if match is None:
            raise _refused(name, f"it has weights that no adapter of low rank has, such as {each}")
        sides.setdefault(match["path"], {})[match["side"]] = weights[each].floats()
    if not sides:
        raise ModelError(f"Adapter '{name}' has no weights. Download it again.")
    try:
        changes = {path: _low_rank(path, pair, told) for path, pair in sides.items()}
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, re.error) as error:
        raise ModelError(
            f"Adapter '{name}' cannot be read: its {CONFIG} and its weights do not fit ({error}). "
            "Download it again."
        ) from error
    scales = json.dumps({key: told.get(key) for key in sorted(_READ)}, default=str)
    key = hashlib.blake2b(scales.encode() + weights.digest(), digest_size=16, person=b"adapter")
    weights.release()
    return Lora(name, str(told.get("base_model_name_or_path") or ""), key.digest(), changes)


def _read_config(folder: Path, name: str) -> Mapping[str, Any]:
    """The settings of an adapter that is computed as they say. Raises ModelError for others."""
    told = read_json(folder / CONFIG)
    if not isinstance(told, dict) or told.get("peft_type") != "LORA":
        kind = told.get("peft_type") if isinstance(told, dict) else told
        raise ModelError(
            f"Adapter '{name}' is of the kind {kind!r:.60}; those of the kind 'LORA' are computed. "
            "Merge it into its model, or train one of that kind."
        )
    if not any(told.get("init_lora_weights") == each for each in _INITIAL):
        raise _refused(
            name,
            f"init_lora_weights={told['init_lora_weights']!r} has changed the model's own weights, "
            "too",
        )
    for key, value in told.items():
        if key not in _READ | _NOTED and value and value != "none":
            raise _refused(name, f"it has {key}={value!r:.60}")
    return told


def _low_rank(path: str, sides: Mapping[str, Floats], told: Mapping[str, Any]) -> LowRank:
    """Raises ValueError and others for what cannot be."""
    if alone := {"A", "B"} - sides.keys():
        raise ValueError(f"{path} has no lora_{alone.pop()}")
    first, second = sides["A"], sides["B"]
    rank = _of_pattern(told.get("rank_pattern"), path, told["r"])
    alpha = float(_of_pattern(told.get("alpha_pattern"), path, told["lora_alpha"]))
    if first.ndim != 2 or second.ndim != 2 or not first.shape[0] == second.shape[1] == rank:
        raise ValueError(f"{path} has {first.shape} and {second.shape}, and its rank is {rank}")
    scale = alpha / (sqrt(rank) if told.get("use_rslora") else rank)
    if not isfinite(scale):
        raise ValueError(f"{path} is scaled by {scale}")
    return LowRank(first, second * np.float32(scale))


def _of_pattern(patterns: Mapping[str, Any] | None, path: str, usual: Any) -> Any:
    """The value of the first pattern that a path, or its end after a dot, matches."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", path):
            return value
    return usual


def _refused(name: str, why: str) -> ModelError:
    return ModelError(f"Adapter '{name}' cannot be computed beside its model: {why}. {_MERGE}")
