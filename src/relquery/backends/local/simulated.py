"""A simulated model opened by its name: the engine's loop at the pace of another machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import OF_CONNECT, EngineConfig
from relquery.demo.files import model_path
from relquery.engine.cost import LinearCost
from relquery.engine.machines import SERVED, Served, find_machine, with_speed
from relquery.errors import ConfigError, did_you_mean, unknown

PREFIX = "simulated:"
_OPTION = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_WHOLE = ("length", "context")
_MOST_BLOCKS = 2**24
"""In a cache. So many take about a gigabyte, although nothing is stored in them."""
_LIMITS = [field.name for field in fields(EngineConfig)]
_TAKEN = [*_LIMITS, "tokenizer"]
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


@dataclass(frozen=True, slots=True)
class SimulatedSpec:
    """What a name such as "simulated:a100-opt13b,speed=10,length=50" says.

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
    """Put an engine around a simulated model: all is real but the network.

    model: "simulated:MACHINE", with settings after commas (see SimulatedSpec).
    options: fields of EngineConfig, by default the machine's; and `tokenizer`, by default that of
        the demo model.

    Raises ConfigError and ModelError.
    """
    _check(model, options)
    spec = SimulatedSpec.parse(model)
    served = spec.served()
    limits = {name: value for name, value in options.items() if name in _LIMITS}
    config = replace(served.limits, **limits)
    _check_caches(config)
    from relquery.model.simulated import SimulatedModel
    from relquery.model.text.tokenizer import as_tokenizer, read_tokenizer

    given = options.get("tokenizer")
    tokenizer = read_tokenizer(model_path()) if given is None else as_tokenizer(given)
    context = config.cache_tokens if spec.context is None else spec.context
    simulated = SimulatedModel(model, tokenizer, served.cost, context, spec.length)
    return EmbeddedBackend(simulated, config, served.cost, job_time=served.job_time)


def _check(model: str, options: Mapping[str, Any]) -> None:
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


def _check_caches(config: EngineConfig) -> None:
    """Raises ConfigError for a cache with more blocks than can be managed."""
    most = _MOST_BLOCKS * config.block_size
    for name in ("cache_tokens", "host_tokens"):
        if (tokens := getattr(config, name)) > most:
            raise ConfigError(
                f"{name} is {tokens:,}; a simulated cache with blocks of {config.block_size} has "
                f"at most {most:,}. Lower {name}, or raise block_size."
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
