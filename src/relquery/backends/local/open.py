"""The engine on this machine, opened by a model's name and options; also with a simulated model."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery.backends.arguments import read_adapters, split_adapter
from relquery.backends.local.embedded import EmbeddedBackend
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
from relquery.demo.files import model_path
from relquery.engine.cost import LinearCost
from relquery.engine.machines import SERVED, Served, find_machine, with_speed
from relquery.errors import ConfigError, MissingExtraError, did_you_mean, unknown, warn

if TYPE_CHECKING:
    from relquery.model.served import ServedModel
    from relquery.model.torch_runtime.compare import TextComparison

_LOG = logging.getLogger(__name__)
_ENGINE_OPTIONS = [field.name for field in fields(EngineConfig)]
_MODEL_OPTIONS = ["dtype", "device", "tokenizer", "quantize", "kv_cache_dtype"]
_KNOWN = [*_ENGINE_OPTIONS, *_MODEL_OPTIONS, "adapters", "cost", "memory", "store", *SIZES]
PREFIX = "simulated:"
_OPTION = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_WHOLE = ("length", "context")
_MOST_BLOCKS = 2**24
"""In a cache. So many take about a gigabyte, although nothing is stored in them."""
_TAKEN = [*_ENGINE_OPTIONS, "tokenizer"]
_NOT_TAKEN = {
    "memory": "it has no memory to share out",
    "store": "it has no states to store",
    "store_memory": "it has no states to store",
    "store_disk": "it has no states to store",
    "cost": "its steps cost what its machine says",
    "dtype": "it has no weights",
    "quantize": "it has no weights",
    "kv_cache_dtype": "it has no states",
    "device": "it runs on no device",
}
"""Options of the embedded engine, and why a simulated model does not take them."""


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
    cost = _cost(options.get("cost"), base)
    store = read_store(options)
    began = time.perf_counter()
    chosen_for_model = {k: v for k, v in options.items() if k in _MODEL_OPTIONS}
    loaded = load(_resolve(base), adapters=adapters, **chosen_for_model)
    _LOG.info("loaded %s in %.1f s: %s", model, time.perf_counter() - began, loaded.runs_in)
    loaded = loaded.named(model)
    if "cache_tokens" in chosen:
        _check_cache(loaded, config)
    sizing = None
    if budget is not None or auto:
        sizing = _size(loaded, config, budget, auto, "cache_tokens" in chosen)
        config = sizing.config
    return EmbeddedBackend(loaded, config, cost, sizing, store, owns_model=True, adapter=adapter)


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


def _check_cache(model: ServedModel, config: EngineConfig) -> None:
    """Raises ConfigError for a cache that is larger than the memory which it would be in."""
    from relquery.model.footprint import host_bytes

    footprint, tokens = model.footprint(), config.cache_tokens
    asked, there = tokens * footprint.cached_token, footprint.whole()
    if asked > there:
        where = "this machine" if there == host_bytes() else "the GPU"
        raise ConfigError(
            f"cache_tokens is {tokens:,}, which takes {shown(asked)}, but {where} has "
            f"{shown(there)}. Lower cache_tokens."
        )


def _cost(given: LinearCost | str | Path | None, model: str) -> LinearCost | None:
    """What steps cost, where it is known."""
    if isinstance(given, (str, Path)):
        machine = find_machine(str(given))
        if machine.model not in (None, model):
            warn(
                f"{given} was measured with the model '{machine.model}', but this is '{model}': "
                "time estimates and the order of jobs may be wrong. Measure with `relquery "
                f"calibrate {model} --output FILE.json`."
            )
        return machine.cost
    if given is not None and not isinstance(given, LinearCost):
        raise ConfigError(
            f"cost is {given!r}. Give a LinearCost, the name of a machine "
            f"({', '.join(SERVED)}), or a file written by `relquery calibrate`."
        )
    return given


def _resolve(model: str) -> str:
    return str(model_path()) if model == "demo" else model


def compare_with_stock(model: str) -> Iterator[TextComparison]:
    """What a model of this machine and transformers make of some texts. Raises ModelError, and
    MissingExtraError without transformers."""
    try:
        from relquery.model.torch_runtime.compare import compare
    except ModuleNotFoundError as error:
        raise MissingExtraError("Comparing a model with transformers", "torch") from error
    return compare(_resolve(model))


@dataclass(frozen=True, slots=True)
class SimulatedSpec:
    """A name such as "simulated:a100-opt13b,speed=10,length=50", read.

    machine: one of SERVED, or a file of `relquery calibrate`. step: seconds of any step, in place
    of a machine. speed: how many times as fast everything is. length: tokens of an answer; None for
    as many as it may have. context: positions; None for as many as the cache has.
    """

    machine: str | None = None
    step: float | None = None
    speed: float = 1.0
    length: int | None = None
    context: int | None = None

    @classmethod
    def parse(cls, text: str) -> SimulatedSpec:
        """Read the form above. Raises ConfigError."""
        values: dict[str, Any] = {}
        for item in filter(None, text.removeprefix(PREFIX).split(",")):
            option = _OPTION.fullmatch(item)
            name, value = option.groups() if option else ("machine", item)
            if name in values:
                raise ConfigError(f"'{text}' gives two values of {name}. Give one.")
            values[name] = value if name == "machine" else _number(name, value, text)
        if ("machine" in values) == ("step" in values):
            raise ConfigError(
                f"'{text}' must name either a machine ({', '.join(SERVED)}, or a .json file of "
                "`relquery calibrate`) or the seconds of a step, as in 'simulated:step=0.2'."
            )
        return cls(**values)

    def served(self) -> Served:
        """The machine with its costs and limits. Raises ConfigError for an unknown machine."""
        if self.machine is not None:
            return with_speed(find_machine(self.machine), self.speed)
        assert self.step is not None
        seconds = self.step / self.speed
        return Served(LinearCost(0.0, seconds, 0.0, seconds), EngineConfig())


def open_simulated(model: str, options: Mapping[str, Any]) -> EmbeddedBackend:
    """Put an engine around a simulated model: all is real but the network and the pace.

    model: "simulated:MACHINE", with settings after commas (see SimulatedSpec).
    options: fields of EngineConfig, by default the machine's; and `tokenizer`, by default that of
        the demo model.

    Raises ConfigError and ModelError.
    """
    _check_simulated(model, options)
    spec = SimulatedSpec.parse(model)
    served = spec.served()
    limits = {name: value for name, value in options.items() if name in _ENGINE_OPTIONS}
    config = replace(served.limits, **limits)
    _check_blocks(config)
    from relquery.model.simulated import SimulatedModel
    from relquery.model.text.tokenizer import as_tokenizer, read_tokenizer

    given = options.get("tokenizer")
    tokenizer = read_tokenizer(model_path()) if given is None else as_tokenizer(given)
    context = config.cache_tokens if spec.context is None else spec.context
    simulated = SimulatedModel(model, tokenizer, served.cost, context, spec.length)
    return EmbeddedBackend(simulated, config, served.cost)


def _check_simulated(model: str, options: Mapping[str, Any]) -> None:
    """Raises ConfigError for options that a simulated model does not take."""
    for name, value in options.items():
        if value is not None and name in _NOT_TAKEN:
            raise ConfigError(f"'{model}' does not take {name}: {_NOT_TAKEN[name]}. Omit {name}.")
        if name not in _TAKEN and name not in _NOT_TAKEN:
            raise ConfigError(
                unknown("option", name, [*_TAKEN, *OF_CONNECT], of="a simulated model")
            )
    if options.get("max_input") == "auto":
        raise ConfigError(
            f"'{model}' does not take max_input='auto': it has no memory to measure. Give "
            "a number of tokens."
        )


def _check_blocks(config: EngineConfig) -> None:
    """Raises ConfigError for a cache with more blocks than can be managed."""
    most = _MOST_BLOCKS * config.block_size
    if config.cache_tokens > most:
        raise ConfigError(
            f"cache_tokens is {config.cache_tokens:,}; a simulated cache with blocks of "
            f"{config.block_size} has at most {most:,}. Lower cache_tokens, or raise block_size."
        )


def _number(name: str, value: str, text: str) -> float | int:
    """The value of a setting. Raises ConfigError for one that is unknown or not above 0."""
    names = [field.name for field in fields(SimulatedSpec) if field.name != "machine"]
    if name not in names:
        raise ConfigError(
            f"The setting '{name}' in '{text}' is not known. Known: {', '.join(names)}."
            + did_you_mean(name, names)
        )
    kind = int if name in _WHOLE else float
    try:
        number = kind(value)
    except ValueError:
        number = 0
    if not 0 < number < inf:
        what = "a whole number" if name in _WHOLE else "a number"
        raise ConfigError(f"{name} is {value!r} in '{text}'; it must be {what} above 0.")
    return number
