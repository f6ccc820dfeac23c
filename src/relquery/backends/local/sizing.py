"""Memory: a budget shared out among weights, steps and a KV cache; a store of states beside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relquery.config import EngineConfig
from relquery.engine.step.shelf import States
from relquery.errors import ConfigError

if TYPE_CHECKING:
    from relquery.model.footprint import Footprint
    from relquery.model.served import ServedExecutor

MaxInput = int | Literal["auto"] | None

CACHE_SHARE = 0.25
"""Of the memory beside the weights, what stays for the cache where any input may be as long."""
RESERVE = 0.02
"""Of the memory, what is left for what is not counted, such as requests and what Python needs."""
SLICE_SHARE = 0.25
"""Of the memory beside the weights, what one slice may take: larger ones compute faster, as weights
are read once for each, and leave less for what grows with the prompt."""
LABEL_TOKENS = 16
"""Tokens of labels for which the longest prompt leaves room, in the context and in memory. They
follow the prompt; of each label all tokens but the last are read."""
_SLICES = (1024, 512, 256, 128)
_UNITS_SHOWN = ("KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")
_UNITS = {"": 1} | {
    unit.lower(): (1024 if "i" in unit else 1000) ** ("KMGT".index(unit[0]) + 1)
    for unit in _UNITS_SHOWN
}


@dataclass(frozen=True, slots=True)
class Sizing:
    """Shares of a memory budget, in bytes.

    step: of the largest step. cache: of the KV cache. max_input: tokens of the longest prompt whose
    answer is one pass, labels of LABEL_TOKENS after it included. bound: what it is bound by.
    config: with these sizes. runs_in: the forward pass, see ServedModel.
    """

    memory: int
    weights: int
    step: int
    cache: int
    max_input: int
    bound: str
    config: EngineConfig
    runs_in: str = ""

    def __str__(self) -> str:
        cached = f"{shown(self.cache)} ({self.config.cache_tokens:,} tokens)"
        return (
            f"{shown(self.memory)}: weights {shown(self.weights)}, the largest step "
            f"{shown(self.step)}, KV cache {cached}. A prompt whose answer is one forward pass may "
            f"have {self.max_input:,} tokens, {self.bound}."
            + (f" It is computed by {self.runs_in.removesuffix('.')}." if self.runs_in else "")
        )


def read_memory(given: int | str, name: str = "memory") -> int:
    """Bytes, from a number or a text such as "2GiB". name: of the option. Raises ConfigError."""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    text = given if isinstance(given, str) else ""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", text)
    unit = _UNITS.get(match[2].lower()) if match else None
    try:
        size = int(float(match[1]) * unit) if match and unit else 0
    except ValueError:
        size = 0
    if size <= 0:
        raise ConfigError(
            f"{name} is {given!r}. Give bytes, or a text such as '2GiB' or '800MB', in "
            f"{', '.join(_UNITS_SHOWN)}."
        )
    return size


def share_out(
    memory: int, footprint: Footprint, config: EngineConfig, max_input: MaxInput, cache_given: bool
) -> Sizing:
    """Share a budget out (paper 004, section 3.1: the profile run).

    max_input: tokens, or "auto" for the most that leaves the cache its share; None for no longer
    steps than max_num_batched_tokens. cache_given: whether the config's cache_tokens is to be kept.
    Raises ConfigError where it does not suffice, with what would.
    """
    free = int((1 - RESERVE) * memory) - footprint.weights
    if free <= 0:
        raise ConfigError(
            f"memory is {shown(memory)}, but the weights alone take {shown(footprint.weights)}."
        )
    if (hidden := footprint.hidden_token * config.max_num_batched_tokens) > free:
        raise ConfigError(
            f"max_num_batched_tokens is {config.max_num_batched_tokens:,}; that many tokens take "
            f"{shown(hidden)} in the network's first layer alone, and the weights leave only "
            f"{shown(free)}. Lower max_num_batched_tokens, or raise memory."
        )
    config = replace(config, slice_tokens=slices_for(free, footprint, config))
    slices = config.slice_tokens
    tokens = config.max_num_batched_tokens
    many = footprint.many_prompts(tokens, min(config.max_num_seqs, tokens), slices)
    cache = footprint.cached_token * (config.cache_tokens if cache_given else config.block_size)
    fixed, per_token = _line(footprint, slices)
    context = max(1, footprint.context - LABEL_TOKENS)
    kept = cache if cache_given else max(cache, int(CACHE_SHARE * free))
    reserved = kept if max_input == "auto" else cache
    longest = min(context, int((free - reserved - fixed) / per_token) - LABEL_TOKENS)
    wanted = longest if max_input == "auto" else max_input or 0
    if wanted > longest or longest <= 0 or free - cache < many:
        raise ConfigError(_too_little(memory, free, cache, many, wanted, longest))
    whole = wanted + LABEL_TOKENS
    long = footprint.one_prompt(whole, slices) if footprint.is_fast else fixed + per_token * whole
    step = max(many, int(long) if wanted else 0)
    if not cache_given:
        blocks = (free - step) // (footprint.cached_token * config.block_size)
        config = replace(config, cache_tokens=max(1, blocks) * config.block_size)
    by_chunks = min(context, config.cache_tokens // config.block_size * config.block_size - 1)
    return Sizing(
        memory=memory,
        weights=footprint.weights,
        step=step,
        cache=config.cache_tokens * footprint.cached_token,
        max_input=max(wanted, by_chunks),
        bound=_bound(wanted, by_chunks, context, max_input),
        config=replace(config, max_input=wanted or None),
    )


def slices_for(free: int, footprint: Footprint, config: EngineConfig) -> int:
    """Tokens of the largest slices of which one takes little memory; the config's if fewer."""
    tokens = min(256, footprint.context)
    each = footprint.one_prompt(tokens, tokens) / tokens
    fitting = (size for size in _SLICES if size * each <= SLICE_SHARE * free)
    return min(config.slice_tokens, next(fitting, _SLICES[-1]))


def _line(footprint: Footprint, slices: int) -> tuple[float, float]:
    """(bytes of any step, bytes per token) of a prompt that is computed whole."""
    from relquery.model.attention_plan import longest_slice

    high = min(4 * longest_slice(slices), footprint.context)
    low = max(1, high // 2)
    at_low, at_high = footprint.one_prompt(low, slices), footprint.one_prompt(high, slices)
    per_token = max(1.0, (at_high - at_low) / max(1, high - low))
    return max(0.0, at_high - per_token * high), per_token


def _bound(wanted: int, by_chunks: int, context: int, max_input: MaxInput) -> str:
    """Why the longest prompt is no longer: it is computed at once, or by chunks in the cache."""
    if max(wanted, by_chunks) >= context:
        return f"the model's context but for {LABEL_TOKENS} of labels"
    if by_chunks >= wanted:
        return "what the cache holds of a prompt that is computed in chunks"
    return "what memory holds" if max_input == "auto" else "as max_input says"


def _too_little(memory: int, free: int, cache: int, many: int, wanted: int, longest: int) -> str:
    if free - cache < many or longest <= 0:
        return (
            f"memory is {shown(memory)}; beside the weights {shown(free)} are left, and a step and "
            f"the cache need {shown(many + cache)}. Raise memory, or lower max_num_batched_tokens "
            "or cache_tokens."
        )
    return (
        f"max_input is {wanted:,}; in a memory of {shown(memory)}, with this model's context, "
        f"{longest:,} tokens fit at most. Lower max_input, or raise memory."
    )


def shown(size: int) -> str:
    """Such as "1.50 GiB"."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


SIZES = {"store_memory": "1GiB", "store_disk": "10GiB"}
"""Options of a store beside its folder, with their defaults."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Stores for the states of modules beside the cache.

    folder: on disk; None for not there. memory, disk: bytes that they may take.
    """

    folder: Path | None
    memory: int
    disk: int


def read_store(options: Mapping[str, Any]) -> StoreOptions | None:
    """The store that options ask for, whose folder is made; None if they ask for none.

    Raises ConfigError.
    """
    if not any(name in options for name in ("store", *SIZES)):
        return None
    folder = options.get("store")
    if folder is not None and (not isinstance(folder, (str, Path)) or not str(folder).strip()):
        raise ConfigError(f"store is {folder!r}; it must be the path of a folder.")
    if folder is None and "store_disk" in options:
        raise ConfigError("store_disk is given without store. Give the folder, too: store='PATH'.")
    memory, disk = (read_memory(options.get(name, usual), name) for name, usual in SIZES.items())
    return StoreOptions(None if folder is None else _made(folder), memory, disk)


def open_store(executor: ServedExecutor, store: StoreOptions, kept_as: object) -> States:
    """The store of an executor's states.

    kept_as: what tells them from those of other models, dtypes and sizes of block, which are in
    other folders. Raises ConfigError.
    """
    folder = None
    if store.folder is not None:
        named = hashlib.blake2b(repr(kept_as).encode(), digest_size=16)
        folder = store.folder / named.hexdigest()
    try:
        return executor.store(store.memory, folder, store.disk)
    except OSError as error:
        raise ConfigError(
            f"store is {store.folder}, which cannot be written to: {error.strerror}."
        ) from error


def _made(folder: str | Path) -> Path:
    """A store's folder, which is made if there is none."""
    try:
        path = Path(folder).expanduser()
        is_file = path.exists() and not path.is_dir()
        if not is_file:
            path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, RuntimeError) as error:  # also names that no folder can have
        given, why = str(folder)[:80], getattr(error, "strerror", None) or error
        raise ConfigError(f"store is {given!r}, which cannot be made: {why}.") from error
    if is_file:
        raise ConfigError(f"store is {folder}, which is a file; it must be a folder.")
    return path
