"""The engine on this machine, opened by a model's name and options."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery.backends.arguments import read_adapters, split_adapter
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.simulated import PREFIX, open_simulated
from relquery.backends.local.sizing import (
    SIZES,
    MaxInput,
    Sizing,
    read_memory,
    read_store,
    share_out,
    shown,
)
from relquery.config import OF_CONNECT, EngineConfig
from relquery.engine.cost import JobTime, LinearCost
from relquery.engine.machines import SERVED, find_machine
from relquery.errors import ConfigError, MissingExtraError, unknown, warn

if TYPE_CHECKING:
    from relquery.model.served import ServedModel
    from relquery.model.torch_runtime.compare import Compared

_LOG = logging.getLogger(__name__)
_ENGINE_OPTIONS = [field.name for field in fields(EngineConfig)]
_MODEL_OPTIONS = ["dtype", "device", "tokenizer", "quantize", "kv_cache_dtype"]
_CACHES = ["cache_tokens", "host_tokens"]
_KNOWN = [*_ENGINE_OPTIONS, *_MODEL_OPTIONS, "adapters", "cost", "memory", "store", *SIZES]


def load_backend(model: str, **options: Any) -> EmbeddedBackend:
    """Load a model and put an engine around it.

    model: "demo", a Hugging Face name or folder, "random:layers=8,hidden=256", or
        "simulated:a100-opt13b" (see open_simulated). "BASE+ADAPTER": with an adapter, by its folder
        or Hugging Face name.
    options: fields of EngineConfig; dtype, device, tokenizer, quantize, kv_cache_dtype, adapters
        (see model.load); and cost, what steps cost on this machine: a LinearCost, a name of
        engine.costs.SERVED, or a file of `relquery calibrate`. By default it is measured if the
        policy predicts durations, about a second for ten million parameters on two cores. memory:
        bytes, or "2GiB": what weights, steps and the KV cache may take together; what a step takes
        is measured, and the cache has the rest. max_input may be "auto": the longest that fits.
        store: a folder for the states of prompt modules, which are found there when the program is
        started again; store_memory, store_disk: what such states may take in host memory ("1GiB" if
        there is a store) and in the folder ("10GiB").

    Raises ModelError, ConfigError, and MissingExtraError where torch is needed and not installed.
    """
    if model.startswith(PREFIX):
        return open_simulated(model, options)
    for name in options:
        if name not in _KNOWN:
            known = [*_KNOWN, *OF_CONNECT]
            raise ConfigError(unknown("option", name, known, of="the embedded engine"))
    from relquery.model.load import load

    chosen = {k: v for k, v in options.items() if k in _ENGINE_OPTIONS}
    auto = chosen.get("max_input") == "auto"
    config = EngineConfig(**chosen | ({"max_input": None} if auto else {}))
    memory = options.get("memory")
    budget = None if memory is None else read_memory(memory)
    base, adapter = split_adapter(model)
    adapters = read_adapters(options.get("adapters"), adapter)
    # Before the model, which takes long to load.
    cost, job_time = _costs(options.get("cost"), base)
    store = read_store(options)
    began = time.perf_counter()
    chosen_for_model = {k: v for k, v in options.items() if k in _MODEL_OPTIONS}
    loaded = load(_resolve(base), adapters=adapters, **chosen_for_model)
    _LOG.info("loaded %s in %.1f s: %s", model, time.perf_counter() - began, loaded.runs_in)
    loaded = loaded.named(model)
    _check_caches(loaded, config, [name for name in _CACHES if name in chosen])
    sizing = None
    if budget is not None or auto:
        sizing = _size(loaded, config, budget, auto, "cache_tokens" in chosen)
        config = sizing.config
    return EmbeddedBackend(
        loaded, config, cost, sizing, job_time, store, owns_model=True, adapter=adapter
    )


def _size(
    model: ServedModel, config: EngineConfig, budget: int | None, auto: bool, cache_given: bool
) -> Sizing:
    footprint = model.footprint()
    budget = footprint.usable() if budget is None else budget
    if budget > footprint.whole():
        raise ConfigError(
            f"memory is {shown(budget)}, but this machine has {shown(footprint.whole())}."
        )
    max_input: MaxInput = "auto" if auto else config.max_input
    sizing = share_out(budget, footprint, config, max_input, cache_given)
    return replace(sizing, runs_in=model.runs_in)


def _check_caches(model: ServedModel, config: EngineConfig, given: Sequence[str]) -> None:
    """Raises ConfigError for a cache that is larger than the memory which it would be in.

    given: the options that say how large they are.
    """
    from relquery.model.footprint import host_bytes

    for name in given:
        footprint = model.footprint()
        is_on_device = name == "cache_tokens"
        tokens, there = getattr(config, name), footprint.whole() if is_on_device else host_bytes()
        asked = tokens * footprint.cached_token
        if asked > there:
            where = "this machine" if there == host_bytes() else "the GPU"
            raise ConfigError(
                f"{name} is {tokens:,}, which takes {shown(asked)}, but {where} has "
                f"{shown(there)}. Lower {name}."
            )


def _costs(
    given: LinearCost | str | Path | None, model: str
) -> tuple[LinearCost | None, JobTime | None]:
    """What steps cost, and a request's time, where it is known."""
    if isinstance(given, (str, Path)):
        machine = find_machine(str(given))
        if machine.model not in (None, model):
            warn(
                f"{given} was measured with the model '{machine.model}', but this is '{model}': "
                "time estimates and the order of jobs may be wrong. Measure with `relquery "
                f"calibrate {model} --output FILE.json`."
            )
        return machine.cost, machine.job_time
    if given is not None and not isinstance(given, LinearCost):
        raise ConfigError(
            f"cost is {given!r}. Give a LinearCost, the name of a machine "
            f"({', '.join(SERVED)}), or a file written by `relquery calibrate`."
        )
    return given, None


def _resolve(model: str) -> str:
    if model == "demo":
        from relquery.demo.files import model_path

        return str(model_path())
    return model


def compare_with_stock(model: str) -> Iterator[Compared]:
    """What a model of this machine and transformers make of some texts. Raises ModelError, and
    MissingExtraError without transformers."""
    try:
        from relquery.model.torch_runtime.compare import compare
    except ModuleNotFoundError as error:
        raise MissingExtraError("Comparing a model with transformers", "torch") from error
    return compare(_resolve(model))
