"""Linear layers whose weights are packed once for matrix products.

Packed weights replace those that the network had, so memory holds them once. A layer still
gives its weight to whoever asks for it, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from relquery.model.forward.packed import PackedWeight, can_pack


class PackedLinear(nn.Linear):
    """A linear layer that was packed, alone or with others, of which it is some of the outputs.

    A module becomes one by changing its class, so that names and hooks stay.
    place: where the weight was in memory, by which tied weights are known.
    """

    packed: PackedWeight
    outputs: slice
    place: int

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight (outputs, inputs), copied for the caller."""
        return self.packed.dense()[self.outputs]

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Called by `state_dict`, without which a network that is saved would lack the weight."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight

    def forward(self, input: Tensor) -> Tensor:
        """See nn.Linear."""
        return self.packed(input)[..., self.outputs]


def pack(layers: Sequence[nn.Linear]) -> PackedWeight:
    """Pack layers that have the same input; each becomes a PackedLinear."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [
        weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        for layer, weight in zip(layers, weights, strict=True)
    ]
    has_bias = any(layer.bias is not None for layer in layers)
    joined = weights[0] if len(weights) == 1 else torch.cat(weights)
    packed = PackedWeight(joined, torch.cat(biases) if has_bias else None)
    start = 0
    for layer, weight in zip(layers, weights, strict=True):
        del layer._parameters["weight"]
        layer.__class__ = PackedLinear
        made = cast(PackedLinear, layer)
        made.packed, made.outputs = packed, slice(start, start + len(weight))
        made.place = weight.data_ptr()
        start += len(weight)
    return packed


def pack_all(network: nn.Module) -> None:
    """Pack each linear layer of a network by itself, where this machine gains by it."""
    for module in network.modules():
        if type(module) is nn.Linear and can_pack(module.weight):
            pack([module])


def packed_weights(network: nn.Module) -> set[PackedWeight]:
    """The packed weights of a network."""
    return {module.packed for module in network.modules() if isinstance(module, PackedLinear)}


def packed_bytes(network: nn.Module) -> int:
    """Bytes of a network's packed weights."""
    return sum(each.nbytes for each in packed_weights(network))
