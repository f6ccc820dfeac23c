"""The cost of a machine's steps, and its limits, by name or from a file of `relquery calibrate`.

Cost models of models on accelerators are derived from public figures. Prefill takes 2 x parameters
floating-point operations per token, at a share of the GPU's peak. A decode step reads all weights
once, at a share of the memory bandwidth, and per request the keys and values of its context.
NVIDIA's data sheet of the A100 with 40 GB: 312 TFLOPS in float16, 1,555 GB/s. Shares: 0.5 of the
operations and 0.8 of the bandwidth on one GPU; under tensor parallelism 0.45 and 0.75 on two, 0.4
and 0.7 on four. A step's own overhead (Python of the scheduler, launches, sampling; and, on several
GPUs, the exchange of activations): 8, 10 and 12 ms. Context of a request: 200 tokens. Blocks of the
cache: 16 tokens, as in vLLM. Table 3 of paper 003 gives which GPUs a model runs on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, fields, replace
from math import inf
from pathlib import Path

from relquery.config import EngineConfig
from relquery.engine.cost import Fit, LinearCost
from relquery.errors import ConfigError, unknown

_OPERATIONS = 312e12
_BANDWIDTH = 1.555e12
_CONTEXT = 200
_BLOCK = 16
_ASIDE = 1e9  # bytes per GPU for activations


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of a kind. used: share of the operations, and read: of the bandwidth; overhead: s."""

    gpus: int
    used: float
    read: float
    overhead: float
    memory: float = 40 * 2**30


@dataclass(frozen=True, slots=True)
class Served:
    """A served model: the cost of steps, and the engine's limits.

    model: the model that was measured; None if the costs were derived.
    """

    cost: LinearCost
    limits: EngineConfig
    model: str | None = None


def derive(
    parameters: float,
    state_bytes: float,
    hardware: Hardware,
    *,
    cache_tokens: int | None = None,
    step_tokens: int = 4096,
) -> Served:
    """Derive a model's costs from its size.

    state_bytes: of the keys and values of one token. cache_tokens: the published value, if any;
    otherwise what is left of 90% of the memory after the weights and 1 GB per GPU. step_tokens:
    limit of a prefill batch, vLLM's default for models with a context of that length.
    """
    operations = 2 * parameters / (hardware.gpus * _OPERATIONS * hardware.used)
    bandwidth = hardware.gpus * _BANDWIDTH * hardware.read
    weights = 2 * parameters
    if cache_tokens is None:
        free = hardware.gpus * (0.9 * hardware.memory - _ASIDE) - weights
        cache_tokens = int(free / state_bytes)
    cost = LinearCost(
        prefill_slope=operations,
        prefill_intercept=hardware.overhead,
        decode_slope=_CONTEXT * state_bytes / bandwidth + 2e-5,
        decode_intercept=weights / bandwidth + hardware.overhead,
    )
    limits = EngineConfig(
        max_num_batched_tokens=step_tokens, cache_tokens=cache_tokens, block_size=_BLOCK
    )
    return Served(cost, limits)


_ONE = Hardware(1, 0.5, 0.8, 0.008)
_TWO = Hardware(2, 0.45, 0.75, 0.010)
_FOUR = Hardware(4, 0.4, 0.7, 0.012)

SERVED = {
    # 40 layers of 5,120 dimensions, each head with its own keys. The cache: vLLM's paper
    # (Kwon et al., 2023), Table 1, 15.7 K slots. Its context, and so a prefill batch: 2,048.
    "a100-opt13b": derive(12.85e9, 2 * 2 * 40 * 5120, _ONE, cache_tokens=15_700, step_tokens=2048),
    # 64 layers, 8 KV heads of 128 dimensions.
    "a100-qwen32b": derive(32.8e9, 2 * 2 * 64 * 8 * 128, _TWO),
    # 80 layers, 8 KV heads of 128 dimensions.
    "a100-llama70b": derive(69e9, 2 * 2 * 80 * 8 * 128, _FOUR),
}


_LIMITS = ("max_num_batched_tokens", "max_num_seqs", "block_size", "cache_tokens")


def find_machine(given: str) -> Served:
    """One of SERVED by its name, or from a file. Raises ConfigError."""
    if given in SERVED:
        return SERVED[given]
    path = Path(given)
    if path.suffix != ".json":
        raise ConfigError(
            unknown("cost model", given, SERVED, more=", or a .json file of `relquery calibrate`")
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cost = {field.name: float(content["cost"][field.name]) for field in fields(LinearCost)}
        limits = {name: content["limits"][name] for name in _LIMITS}
    except OSError as error:
        raise ConfigError(f"The cost model {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a cost model: {type(error).__name__}: {error}. Write one with "
            "`relquery calibrate MODEL --output FILE.json`."
        ) from error
    if not all(0 <= each < inf for each in cost.values()):
        raise ConfigError(f"{path} has costs that are negative or not finite. Measure again.")
    return Served(LinearCost(**cost), EngineConfig(**limits), content.get("model"))


def write_machine(path: Path, model: str, fit: Fit, limits: EngineConfig) -> None:
    """Write a fitted cost model with the limits it is valid for."""
    content = {
        "model": model,
        "cost": asdict(fit.cost),
        "r2": fit.r2,
        "held_out_r2": fit.held_out,
        "steps": fit.steps,
        "limits": {name: getattr(limits, name) for name in _LIMITS},
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def with_cache(served: Served, cache_tokens: int | None) -> Served:
    """The same machine with another KV cache; None leaves it as it is."""
    if cache_tokens is None:
        return served
    return replace(served, limits=replace(served.limits, cache_tokens=cache_tokens))


def with_speed(served: Served, speed: float) -> Served:
    """The same machine, with everything `speed` times as fast."""
    return replace(served, cost=LinearCost(*(seconds / speed for seconds in astuple(served.cost))))
