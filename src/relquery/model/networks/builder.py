"""What all networks are made with: packed matrices, norms, and places for rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relquery._native import Network
from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.formats.safetensors import Weights, narrow

GROUP = 32
"""Numbers of a quantised row that have a factor in common."""
SILU, GELU_TANH, GELU = range(3)
"""Activations, as kernels know them."""
ACTIVATIONS = {"silu": SILU, "swish": SILU, "gelu_pytorch_tanh": GELU_TANH, "gelu": GELU}


class NetworkBuilder:
    """Makes a network from weights. kind: of its numbers. bits: to which those of matrices are
    rounded, 4 or 8; 0 for not at all."""

    def __init__(
        self, net: Network, weights: Weights, kind: int, threads: int, bits: int = 0
    ) -> None:
        self._net, self._weights, self._kind, self._threads = net, weights, kind, threads
        self._bits = bits
        self._places: dict[str, int] = {}

    def _place(self, name: str, width: int) -> int:
        """A place for rows of which all layers make use."""
        if name not in self._places:
            self._places[name] = self._net.add_buffer(width)
        return self._places[name]

    def _perceive(
        self,
        source: int,
        result: int,
        up: Sequence[str],
        down: str,
        within: str,
        inner: int,
        activation: int,
        *,
        is_gated: bool = True,
    ) -> None:
        """A perceptron. up, down: names of its matrices. inner: width inside of it."""
        net, first, wide = self._net, self._pack(up, within), self._place("activated", inner)
        if is_gated and net.gates(first):
            net.multiply(source, first, wide, activation)
        else:
            before = self._place("before it is activated", 2 * inner if is_gated else inner)
            net.multiply(source, first, before)
            net.activate(before, wide, activation)
        net.multiply(wide, self._pack([down], within), result)

    def _pack(self, names: Sequence[str], within: str = "", bits: int | None = None) -> int:
        """A matrix of the rows of several, with their biases. bits: others than usual."""
        bits = self._bits if bits is None else bits
        paths = [f"{within}.{each}" if within else each for each in names]
        weights = [self._weights[f"{each}.weight"] for each in paths]
        if self._kind != 0 and weights[0].shape[-1] % 2:
            raise _cannot_run(f"{paths[0]} has an odd width, which needs dtype='float32'")
        if bits and weights[0].shape[-1] % GROUP:
            raise ModelError(
                f"{paths[0]} has rows of {weights[0].shape[-1]} numbers; quantize needs a multiple "
                f"of {GROUP}. Leave quantize out."
            )
        parts = [each.rows for each in weights]
        biases = [self._weights.take(f"{each}.bias") for each in paths]
        bias = None
        if any(biases):
            bias = np.concatenate([each.floats() for each in biases if each is not None])
            if len(bias) != sum(each.shape[0] for each in weights):
                raise ValueError(f"{paths[0]} has a bias, and another beside it has none")
        packed = None if bias is None else narrow(bias, self._kind)
        return self._net.add_weight(parts, packed, self._threads, 1, bits)


def _cannot_run(why: str) -> UnsupportedNetworkError:
    return UnsupportedNetworkError(
        f"The network cannot run in relquery's own runtime: {why}. Install relquery[torch], which "
        "computes more networks, or run it on a server such as vLLM."
    )
