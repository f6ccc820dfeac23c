"""Frequencies of rotary embeddings, from a configuration.

Linear interpolation (Chen et al. 2023), Llama 3's bands (Llama 3.1's model card), YaRN (Peng et al.
2023) and LongRoPE's short factors (Ding et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery.model.formats.config import ConfigReader

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rotation:
    """frequencies: (half,) radians per token, as float32. factor: of cosines and sines.

    context: positions for which the frequencies hold; 0 for any.
    """

    frequencies: tuple[float, ...]
    factor: float = 1.0
    context: int = 0

    def tables(self, positions: npt.NDArray[np.generic]) -> tuple[Floats, Floats]:
        """Cosines and sines (positions, half), of angles in float32 as networks are trained."""
        angles = positions.astype(np.float32)[:, None] * np.array(self.frequencies, np.float32)
        factor = np.float32(self.factor)
        return np.cos(angles) * factor, np.sin(angles) * factor

    def turns(self, shifts: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """The same for shifts of keys that have their factor already, of angles in float64."""
        angles = shifts[:, None] * np.array(self.frequencies, np.float64)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def read_rotation(
    settings: ConfigReader,
    width: int,
    *,
    name: str = "",
    theta: float = 1e4,
    may_be_partial: bool = False,
) -> Rotation:
    """The rotation of heads of a width. name: of a kind of layers that has its own.

    theta: where the configuration has none. may_be_partial: whether a part of a head may be turned
    with plain frequencies; other families do not read that. Raises ModelError.
    """
    written, before = settings.within("rope_parameters"), settings.within("rope_scaling")
    if written and before and dict(written) != dict(before):
        raise settings.refused("rope_parameters and rope_scaling say different things")
    given = written or before
    if written and name:
        if name not in written:
            raise settings.refused(f"rope_parameters does not say those of {name}")
        given = written.within(name)
    elif given is not None and name and "rope_type" not in given:
        raise settings.refused("rope_scaling has no rope_type")
    base = settings.number("rope_theta", theta)
    if given is None:
        return Rotation(_plain(base, width))
    base = given.number("rope_theta", base)
    kind = given.text("rope_type", given.text("type", "default"))
    part = given.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1.0))
    if kind != "default" or may_be_partial:
        width = int(width * part)
    if kind not in _KINDS:
        raise settings.refused(f"its rotary embedding is of the kind '{kind}'")
    rotation = _KINDS[kind](settings, given, _plain(base, width), base)
    given.end({"rope_theta", "type", "rope_type", "partial_rotary_factor"})
    return rotation


def _plain(base: float, width: int) -> tuple[float, ...]:
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return tuple((1.0 / np.float32(base) ** exponents).astype(np.float32).tolist())


def _default(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    del settings, given, base
    return Rotation(plain)


def _linear(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    del settings, base
    factor = np.float32(given.number("factor"))
    return Rotation(tuple((np.array(plain, np.float32) / factor).tolist()))


def _llama3(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    """Low frequencies are divided, high ones are not, and those between are mixed."""
    del settings, base
    factor = given.number("factor")
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    before = given.integer("original_max_position_embeddings")
    frequencies = np.array(plain, np.float32)
    lengths = np.float32(2 * math.pi) / frequencies
    smooth = (np.float32(before) / lengths - np.float32(low)) / np.float32(high - low)
    divided = frequencies / np.float32(factor)
    mixed = (1 - smooth) * divided + smooth * frequencies
    scaled = np.where(lengths > before / low, divided, frequencies)
    between = ~(lengths < before / high) & ~(lengths > before / low)
    return Rotation(tuple(np.where(between, mixed, scaled).astype(np.float32).tolist()))


def _divided(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    """Each frequency is divided by a number of its own, as GGUF files say it of Llama 3."""
    del settings, base
    divisors = _numbers(given, "divisors", len(plain))
    return Rotation(tuple((np.array(plain, np.float32) / divisors).tolist()))


def _numbers(given: ConfigReader, key: str, count: int) -> Floats:
    """A list of a number for each frequency."""
    value = given.get(key)
    if not isinstance(value, list) or len(value) != count:
        raise given.refused(f"{key} is not a list of a number for each frequency")
    return np.array(value, np.float32)


def _yarn(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    """Frequencies that turn often stay, those that turn seldom are divided."""
    before = given.integer("original_max_position_embeddings", 0, least=0) or settings.integer(
        "max_position_embeddings"
    )
    factor = given.number("factor", settings.integer("max_position_embeddings") / before)
    width = 2 * len(plain)

    def place_of(turns: float) -> float:
        return width * math.log(before / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = place_of(given.number("beta_fast", 32.0))
    last = place_of(given.number("beta_slow", 1.0))
    if given.flag("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    last = last + 0.001 if first == last else last
    ramp = (np.arange(width // 2, dtype=np.float32) - np.float32(first)) / np.float32(last - first)
    kept = 1 - np.clip(ramp, 0, 1)
    frequencies = np.array(plain, np.float32)
    mixed = frequencies / np.float32(factor) * (1 - kept) + frequencies * kept
    return Rotation(tuple(mixed.astype(np.float32).tolist()), _yarn_factor(given, factor))


def _yarn_factor(given: ConfigReader, factor: float) -> float:
    def scaled(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    told = given.number("attention_factor", 0.0)
    of_some, of_all = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    if told:
        return told
    return scaled(of_some) / scaled(of_all) if of_some and of_all else scaled(1.0)


def _longrope(
    settings: ConfigReader, given: ConfigReader, plain: tuple[float, ...], base: float
) -> Rotation:
    """The frequencies of prompts up to the original length.

    Those of longer ones depend on the longest of a step, so that one request would change others.
    """
    del base
    outside = settings.integer("original_max_position_embeddings", 0, least=0)
    before = given.integer("original_max_position_embeddings", outside)
    if outside not in (0, before):
        raise settings.refused("original_max_position_embeddings is two different numbers")
    factor = given.number("factor", settings.integer("max_position_embeddings") / before)
    short, _ = _numbers(given, "short_factor", len(plain)), given.get("long_factor")
    told = given.number("attention_factor", 0.0)
    usual = math.sqrt(1 + math.log(factor) / math.log(before)) if factor > 1 else 1.0
    factors = np.array(plain, np.float32) / short
    return Rotation(tuple(factors.astype(np.float32).tolist()), told or usual, before)


_KINDS: dict[str, Callable[[ConfigReader, ConfigReader, tuple[float, ...], float], Rotation]] = {
    "default": _default,
    "linear": _linear,
    "divided": _divided,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
