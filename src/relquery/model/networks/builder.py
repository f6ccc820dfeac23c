"""Parts that all networks are made with: packed matrices, norms, and places for rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relquery._native import Network, Rows
from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.formats.adapter import Floats, Lora
from relquery.model.formats.safetensors import Weights, narrow

GROUP = 32
"""Numbers of a quantised row that have a factor in common."""
SILU, GELU_TANH, GELU = range(3)
"""Activations, as kernels know them."""
ADAPTED, BETWEEN = "rows of adapters", "between the matrices of an adapter"
"""Places that networks with adapters have."""
MOST_JOINED = 3
"""Matrices of which a product has the rows: those of queries, keys and values."""
_FILLED = 32  # ranks are filled up with zeros to a multiple of it, as AMX needs
ACTIVATIONS = {"silu": SILU, "swish": SILU, "gelu_pytorch_tanh": GELU_TANH, "gelu": GELU}


class NetworkBuilder:
    """A builder of a network from weights. kind: of its numbers. bits: to which those of matrices
    are rounded, 4 or 8; 0 for not at all. loras: adapters that tokens may be computed with, from
    number 1 on."""

    def __init__(
        self,
        net: Network,
        weights: Weights,
        kind: int,
        threads: int,
        bits: int = 0,
        loras: Sequence[Lora] = (),
    ) -> None:
        self._net, self._weights, self._kind, self._threads = net, weights, kind, threads
        self._bits, self._loras = bits, loras
        self._places: dict[str, int] = {}
        self._adaptable: set[str] = set()  # paths of the matrices that adapters may change

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
        is_changed = any(f"{within}.{each}" in lora.changes for lora in self._loras for each in up)
        if is_gated and net.gates(first) and not is_changed:
            net.multiply(source, first, wide, activation)
        else:
            before = self._place("before it is activated", 2 * inner if is_gated else inner)
            net.multiply(source, first, before)
            self._adapt(up, within, source, before)
            net.activate(before, wide, activation)
        self._multiply([down], within, wide, result)

    def _multiply(self, names: Sequence[str], within: str, source: int, result: int) -> None:
        """Products with the rows of several matrices, and what adapters add to them."""
        self._net.multiply(source, self._pack(names, within), result)
        self._adapt(names, within, source, result)

    def _adapt(self, names: Sequence[str], within: str, source: int, result: int) -> None:
        """Add to products with the rows of several matrices what adapters change of them."""
        if not self._loras:
            return
        paths = [f"{within}.{each}" for each in names]
        self._adaptable.update(paths)
        shapes = {path: self._weights[f"{path}.weight"].shape for path in paths}
        changes = join_changes(self._loras, shapes)
        if changes is not None:
            first, second = map(self._pack_low_rank, changes)
            rows, between = self._places[ADAPTED], self._places[BETWEEN]
            self._net.adapt(source, first, second, result, rows, between)

    def _pack_low_rank(self, matrices: Floats) -> int:
        """Matrices of all adapters (adapters, outputs, inputs)."""
        count, outputs, inputs = matrices.shape
        rows = Rows(narrow(matrices, 0), 0, count * outputs, inputs)
        return self._net.add_weight([rows], None, self._threads, count)

    def _pack(self, names: Sequence[str], within: str = "", bits: int | None = None) -> int:
        """A matrix of the rows of several, with their biases. bits: others than usual."""
        bits = self._bits if bits is None else bits
        paths = [f"{within}.{each}" if within else each for each in names]
        weights = [self._weights[f"{each}.weight"] for each in paths]
        self._check_width(paths[0], weights[0].shape[-1], bits)
        parts = [each.rows for each in weights]
        biases = [self._weights.take(f"{each}.bias") for each in paths]
        bias = None
        if any(biases):
            bias = np.concatenate([each.floats() for each in biases if each is not None])
            if len(bias) != sum(each.shape[0] for each in weights):
                raise ValueError(f"{paths[0]} has a bias, and another beside it has none")
        packed = None if bias is None else narrow(bias, self._kind)
        return self._net.add_weight(parts, packed, self._threads, 1, bits)

    def _check_width(self, name: str, width: int, bits: int) -> None:
        """Raise UnsupportedNetworkError or ModelError for rows that cannot be packed."""
        if self._kind != 0 and width % 2:
            raise _cannot_run(f"{name} has an odd width, which needs dtype='float32'")
        if bits and width % GROUP:
            raise ModelError(
                f"{name} has rows of {width} numbers; quantize needs a multiple of {GROUP}. Leave "
                "quantize out."
            )


def _cannot_run(why: str) -> UnsupportedNetworkError:
    return UnsupportedNetworkError(
        f"The network cannot run in relquery's own runtime: {why}. Install relquery[torch], which "
        "computes more networks, or run it on a server such as vLLM.",
        why,
    )


def widest_rank(loras: Sequence[Lora]) -> int:
    """Numbers between the two matrices of any product, at most."""
    ranks = [len(change.first) for lora in loras for change in lora.changes.values()]
    return _filled(MOST_JOINED * max(ranks))


def join_changes(
    loras: Sequence[Lora], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Floats, Floats] | None:
    """What adapters add to products with joined matrices: matrices (adapters, rank, inputs)
    and (adapters, outputs, rank); None if nothing is changed.

    shapes: (outputs, inputs) of each of the joined matrices, by its path. Each has a part of the
    rank of its own. Raises ModelError for an adapter of other sizes.
    """
    changed = [path for path in shapes if any(path in lora.changes for lora in loras)]
    if not changed:
        return None
    deep = max(
        len(lora.changes[path].first) for path in changed for lora in loras if path in lora.changes
    )
    outputs, rank = sum(shape[0] for shape in shapes.values()), _filled(len(changed) * deep)
    first = np.zeros((len(loras), rank, shapes[changed[0]][1]), np.float32)
    second = np.zeros((len(loras), outputs, rank), np.float32)
    row = 0
    for path, shape in shapes.items():
        for number, lora in enumerate(loras):
            if path in lora.changes:
                _check_sizes(lora, path, shape)
                change, start = lora.changes[path], changed.index(path) * deep
                inner = slice(start, start + len(change.first))
                first[number, inner] = change.first
                second[number, row : row + shape[0], inner] = change.second
        row += shape[0]
    return first, second


def _check_sizes(lora: Lora, path: str, shape: tuple[int, ...]) -> None:
    change = lora.changes[path]
    sizes = (change.second.shape[0], change.first.shape[1])
    if sizes != shape:
        trained = f", {lora.base}" if lora.base else ""
        raise ModelError(
            f"Adapter '{lora.name}' changes a matrix of {sizes} numbers at {path}, but the model's "
            f"has {shape}. Use it with the model that it was trained for{trained}."
        )


def _filled(rank: int) -> int:
    return -(-rank // _FILLED) * _FILLED
