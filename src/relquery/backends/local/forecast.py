"""Forecasts for models of the catalogue on this machine's processor: memory, and tokens a second.

By its roofline. An answer that is decoded alone reads all weights for each token; a prompt takes
two operations for each weight and token. How many weights and operations a second there are is
measured on a network with random weights, too large for most processors' caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from relquery.config import EngineConfig
from relquery.engine.calibration import calibrate
from relquery.engine.executor import RealClock
from relquery.model.catalogue import (
    BFLOAT16,
    ENCODERS,
    FLOAT32,
    FOUR_BITS,
    TEXT,
    Listed,
    find_listed,
)
from relquery.model.footprint import host_bytes
from relquery.model.formats.gguf import read_gguf
from relquery.model.gguf_store import find_gguf
from relquery.model.hub import ENCODER, MODEL, find_folder, repair
from relquery.model.installed import Installed, installed
from relquery.model.native_model import open_random
from relquery.model.networks.random import byte_tokenizer

Here: TypeAlias = Installed
QUICK = 20.0
"""Tokens a second at which an answer is as fast as people read."""
_HELD = 4_096  # tokens whose states count as needed memory
_PROCESS = 400e6  # bytes of Python and its libraries
_LAYERS, _HIDDEN, _FFN = 3, 1024, 4096
_NETWORK = f"random:layers={_LAYERS},hidden={_HIDDEN},ffn={_FFN}"
_WEIGHTS = _LAYERS * (4 * _HIDDEN**2 + 3 * _HIDDEN * _FFN)
_LIMITS = EngineConfig(max_num_batched_tokens=256, max_num_seqs=1, cache_tokens=1024)
_FETCHED = (
    "a name on the hub, also with a format: OWNER/NAME:Q4_K_M. Models of Ollama are fetched by "
    "`ollama pull`; 'demo' and 'random:...' need no file"
)
_OPENED = {FLOAT32: ("float32", 0), BFLOAT16: ("bfloat16", 0), FOUR_BITS: ("bfloat16", 4)}


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a machine with weights in one format."""

    weights: float
    """Read in a second while one answer is decoded."""
    operations: float
    """In a second while a prompt is computed; a multiplication and an addition are two."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A model of the catalogue on this machine, in one format."""

    model: Listed
    form: str
    size: int
    """Bytes of its file."""
    memory: int
    """Bytes that it takes: weights, the states of 4,096 tokens, and what Python needs."""
    prompt_speed: float
    """Tokens of prompts a second."""
    answer_speed: float | None
    """Tokens a second of one answer; None for an encoder."""
    fits: bool
    """Whether half of the machine's memory is enough."""


def measure_speeds(forms: Sequence[str] = tuple(_OPENED)) -> dict[str, Speed]:
    """The speeds of this machine's processor by format, in a second or two for each."""
    return {form: _measured(*_OPENED[form]) for form in forms}


def _measured(dtype: str, bits: int) -> Speed:
    model = open_random(_NETWORK, dtype, byte_tokenizer(), bits)
    try:
        executor = model.executor(_LIMITS, _LIMITS.cache_tokens, lambda: 0.0)
        fit = calibrate(
            executor,
            _LIMITS,
            RealClock(),
            vocabulary=model.vocabulary,
            longest=_LIMITS.cache_tokens,
            quick=True,
        )
        executor.close()
    finally:
        model.close()
    long = fit.cost.seconds(_LIMITS.max_num_batched_tokens, 0)
    operations = 2 * _WEIGHTS * _LIMITS.max_num_batched_tokens / long
    return Speed(_WEIGHTS / fit.cost.seconds(0, 1), operations)


def foretell(
    model: Listed, form: str, speeds: Mapping[str, Speed], memory: int | None = None
) -> Forecast:
    """What a model would do. memory: bytes of the machine. form: an encoder has float32 alone."""
    form = FLOAT32 if model.is_encoder else form
    shape, speed = model.shape, speeds[form]
    read = shape.body + (0 if model.is_encoder else shape.embedding)
    size = shape.size(form)
    states = 0 if model.is_encoder else _HELD * shape.state_bytes
    needed = int(size + states + _PROCESS)
    return Forecast(
        model,
        form,
        size,
        needed,
        prompt_speed=speed.operations / (2 * shape.body),
        answer_speed=None if model.is_encoder else speed.weights / read,
        fits=needed <= (host_bytes() if memory is None else memory) / 2,
    )


def recommended(forecasts: Sequence[Forecast]) -> tuple[Forecast | None, Forecast | None]:
    """The model for text and the encoder to begin with; None where none fits.

    Both fit into half of the memory and have a licence that allows any use. For text: the largest
    that gives 20 tokens a second, or else the smallest, of those that answer without thinking
    first. The encoder: the fastest that needs no words before a text.
    """
    free = [each for each in forecasts if each.fits and each.model.is_permissive]
    text = [each for each in free if each.answer_speed is not None and not each.model.thinks]
    quick = [each for each in text if (each.answer_speed or 0.0) >= QUICK]
    encoders = [each for each in free if each.model.is_encoder and not each.model.needs_prefix]
    return (
        max(quick, key=_parameters) if quick else min(text, key=_parameters, default=None),
        max(encoders, key=lambda each: each.prompt_speed, default=None),
    )


def _parameters(forecast: Forecast) -> int:
    return forecast.model.shape.parameters


def catalogue() -> tuple[Listed, ...]:
    """All models that are listed."""
    return (*TEXT, *ENCODERS)


def found_here() -> list[Here]:
    """The models that are on this machine."""
    return installed()


def fetch(name: str) -> str:
    """Download a model that is not here yet; its name as `-m` or `embedder=` takes it.

    name: of the hub, also with a format behind it: "NAME:Q4_K_M". Of a model of the catalogue, that
    is in another repository. Files that are not as long as the hub says are downloaded again.
    Raises ModelError.
    """
    base, _, form = name.partition(":")
    listed = find_listed(base)
    if listed is not None and form and listed.gguf:
        name = f"{listed.gguf}:{form}"
    repair(name.partition(":")[0])
    file = find_gguf(name)
    if file is not None:
        read_gguf(file)  # which says what is not whole
    else:
        kind = ENCODER if listed is not None and listed.is_encoder else MODEL
        names = tuple(each.name for each in catalogue() if each.is_encoder is (kind is ENCODER))
        find_folder(name, replace(kind, known=_FETCHED, names=names))
    return name
