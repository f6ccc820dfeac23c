"""Copies the states of spans to other positions: keys are rotated, values stay. Of the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relquery.errors import ConfigError

_DIGIT = 64
"""Numbers up to this are exact in every floating-point type."""
_AT_ONCE = 1_024
"""Blocks that are copied at a time."""
_ANGLES = 1e-3
"""Tolerance of sums of angles."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rotary position embedding (RoFormer, Su et al. 2021), by which keys can be moved.

    table: (positions, width) cosines, then sines, of every angle at every position, in float32.
    width: elements of a key that are rotated. is_split: whether the pairs are first and second
    half (as in GPT-NeoX), or neighbours (as in GPT-J).
    """

    table: torch.Tensor
    width: int
    is_split: bool

    @classmethod
    def of(cls, embedding: Any, device: torch.device | str = "cpu") -> Rotary:
        """From vLLM's. device: of the keys.

        Raises ConfigError if moving keys by an angle would not be exact.
        """
        table = embedding._compute_cos_sin_cache().float()
        cos, sin = table.chunk(2, dim=-1)
        a, b = (len(table) - 1) // 3, (len(table) - 1) // 2
        moved = cos[a] * cos[b] - sin[a] * sin[b]
        is_unit = torch.allclose(cos[a] ** 2 + sin[a] ** 2, torch.ones_like(cos[a]), atol=1e-4)
        if not is_unit or not torch.allclose(moved, cos[a + b], atol=_ANGLES):
            raise ConfigError(
                f"This model's positions ({type(embedding).__name__}) cannot be moved by an angle, "
                "so its spans cannot be reused elsewhere."
            )
        return cls(table.to(device), int(embedding.rotary_dim), bool(embedding.is_neox_style))

    def rotated(self, keys: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        """Keys at later positions. keys: (n, ..., size). by: (n,) positions."""
        cos, sin = self.table[by].chunk(2, dim=-1)
        shape = (len(keys), *(1,) * (keys.dim() - 2), -1)
        cos, sin = cos.view(shape), sin.view(shape)
        floats = keys.float()
        if self.is_split:
            half = self.width // 2
            first, second = floats[..., :half], floats[..., half : self.width]
            turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        else:
            first, second = floats[..., 0 : self.width : 2], floats[..., 1 : self.width : 2]
            turned = torch.stack((first * cos - second * sin, second * cos + first * sin), -1)
            turned = turned.flatten(-2)
        return torch.cat((turned, floats[..., self.width :]), -1).to(keys.dtype)


Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Writes keys and values, (tokens, heads, size), to a cache at slots, as the model does."""


def key_places(
    cache: torch.Tensor, heads: int, size: int, block: int, write: Write
) -> torch.Tensor:
    """Where a block holds its keys: (heads, block, size) indices into the flat block.

    Backends lay out keys differently, so their own writing is asked: numbers are written as keys,
    and looked up. cache: of a layer, (blocks, heads, block, 2 * size) or of another shape.
    """
    scratch = torch.empty_strided(
        (2, *cache.shape[1:]), cache.stride(), dtype=cache.dtype, device=cache.device
    )
    numbers = torch.arange(heads * block * size, device=cache.device)
    numbers = numbers.view(heads, block, size)
    places_found = torch.zeros(numbers.numel(), dtype=torch.long, device=cache.device)
    slots = torch.arange(block, 2 * block, device=cache.device)
    scale = 1
    while scale <= numbers.numel():
        digits = (numbers // scale % _DIGIT + 1).to(cache.dtype).transpose(0, 1).contiguous()
        scratch.zero_()
        write(digits, torch.zeros_like(digits), scratch, slots)
        written = scratch[1].reshape(-1).long()
        held = torch.nonzero(written).flatten()
        if len(held) != numbers.numel():
            raise ConfigError("This attention backend keeps keys in a form that spans do not know.")
        if scale == 1:
            places, places_found = held, torch.zeros_like(held)
        places_found += (written[places] - 1) * scale
        scale *= _DIGIT
    order = torch.empty_like(places)
    order[places_found] = places
    return order.view(heads, block, size)


@dataclass(slots=True)
class Copier:
    """Copies blocks within the caches of all layers. places: see key_places."""

    caches: Sequence[torch.Tensor]
    rotary: Rotary
    places: torch.Tensor

    def copy(self, sources: Sequence[int], targets: Sequence[int], by: Sequence[int]) -> None:
        """Copy blocks; the keys of each move by so many positions."""
        device = self.caches[0].device
        given = [torch.tensor(each, device=device) for each in (sources, targets, by)]
        for start in range(0, len(sources), _AT_ONCE):
            source, target, moved = (each[start : start + _AT_ONCE] for each in given)
            for cache in self.caches:
                blocks = cache[source].flatten(1)
                keys = blocks[:, self.places]
                blocks[:, self.places.flatten()] = self.rotary.rotated(keys, moved).flatten(1)
                cache[target] = blocks.view(len(source), *cache.shape[1:])
