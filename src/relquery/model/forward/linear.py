"""Linear layers whose weights are packed once for oneDNN's matrix products.

Packed weights replace those that the network had, so memory holds them once. A layer still
gives its weight to whoever asks for it, bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from relquery.model.kernels import panels as kernel
from relquery.model.kernels.arguments import KINDS, Arguments
from relquery.model.kernels.threads import threads
from relquery.model.kernels.tiles import TILE_ROWS

_ONEDNN: Any = torch.ops.mkldnn
LONG = 128
"""Rows by which a long step is padded at most."""
ALONE = 1 << 16
"""Numbers of a weight that one thread reads sooner than several begin."""


def padded_rows(rows: int) -> int:
    """Rows that a product should have if `rows` are needed.

    oneDNN makes code for each number of rows: 0.2 to 0.4 ms and half a megabyte per weight's shape,
    which it keeps. So few rows are padded to a multiple of what a tile holds, up to 256 to a
    multiple of 16, and more by one in sixteen at most, to a multiple of up to LONG.
    """
    if rows <= TILE_ROWS[0]:
        return 1 << (rows - 1).bit_length() if rows else 0
    if rows <= kernel.MOST:
        step = TILE_ROWS[0]
    else:
        step = min(max(16, 1 << ((rows - 1).bit_length() - 5)), LONG)
    return -(-rows // step) * step


def can_pack(weight: Tensor) -> bool:
    """Whether this machine multiplies by packed weights of this type."""
    return weight.device.type == "cpu" and _packs(weight.dtype)


@cache
def _packs(dtype: torch.dtype) -> bool:
    """Found by trying: builds of torch differ in what they have."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    ones = torch.ones(16, 16, dtype=dtype)
    try:
        if dtype == torch.bfloat16 and not _ONEDNN._is_mkldnn_bf16_supported():
            return False
        packed = _ONEDNN._reorder_linear_weight(ones)
        product = _ONEDNN._linear_pointwise(ones, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # not in this build, or not on this machine
        return False
    return bool((product == 16).all()) and torch.equal(packed.to_dense(), ones)


class PackedWeight:
    """The weight (outputs, inputs) and bias of one linear layer, or of several with one input.

    It stays as it is where `can_pack` says no.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._is_packed = can_pack(weight)
        self._weight = _ONEDNN._reorder_linear_weight(weight) if self._is_packed else weight
        self._panels = _panels(self._weight, weight) if self._is_packed else 0
        self.bias = bias
        self.outputs, self.count, self.nbytes = len(weight), weight.numel(), weight.nbytes

    def __call__(self, rows: Tensor) -> Tensor:
        """Products (..., outputs) of rows (..., inputs)."""
        if self._panels and rows.dim() == 2 and 0 < rows.shape[0] <= kernel.MOST:
            return self._multiply(rows)
        if self._is_packed:
            product = _ONEDNN._linear_pointwise(rows, self._weight, self.bias, "none", [], "")
            return cast(Tensor, product)
        return nn.functional.linear(rows, self._weight, self.bias)

    @property
    def is_ours(self) -> bool:
        """Whether our own kernel can compute products of up to `panels.MOST` rows."""
        return self._panels != 0

    def arguments(self, rows: Tensor, result: Tensor, work: Tensor) -> Arguments:
        """What our own kernel is told. rows, result: contiguous. work: memory of its threads."""
        a = Arguments(kernel.ARGUMENTS)
        a[kernel.KIND], a[kernel.ROWS] = KINDS[rows.dtype], rows.shape[0]
        a[kernel.INPUTS], a[kernel.OUTPUTS] = rows.shape[1], self.outputs
        a[kernel.SOURCE], a[kernel.MATRIX] = rows.data_ptr(), self._panels
        a[kernel.BIAS] = 0 if self.bias is None else self.bias.data_ptr()
        a[kernel.RESULT], a[kernel.WORK] = result.data_ptr(), work.data_ptr()
        return a

    def _multiply(self, rows: Tensor) -> Tensor:
        """Products of few rows, by our own kernel."""
        rows = rows.contiguous()
        result = rows.new_empty(rows.shape[0], self.outputs)
        workers = threads() if self.count > ALONE else 1
        work = torch.empty(workers * kernel.WORK_BYTES, dtype=torch.uint8)
        kernel.MULTIPLY.run(self.arguments(rows, result, work), workers)
        return result

    def dense(self) -> Tensor:
        """The weight as the network had it."""
        return self._weight.to_dense() if self._is_packed else self._weight


def _panels(packed: Tensor, weight: Tensor) -> int:
    """Where the numbers of a packed weight are, if they lie as our own kernel reads them; else 0.

    oneDNN chooses the order by machine, type and shape, and does not tell it. Here some of it is
    compared: all panels of a weight are alike.
    """
    outputs, inputs = weight.shape
    size, together = weight.element_size(), 4 // weight.element_size()
    panel = kernel.PANEL
    try:
        place, count = int(_ONEDNN.data_ptr(packed)), int(_ONEDNN._nbytes(packed))
    except AttributeError:  # not in this build of torch
        return 0
    if outputs % panel or inputs % together or count != weight.nbytes:
        return 0
    for number in {0, outputs // panel // 2, outputs // panel - 1}:
        part = weight[number * panel : (number + 1) * panel].contiguous().view(torch.int8)
        expected = part.view(panel, inputs // together, 4).transpose(0, 1).contiguous()
        found = ctypes.string_at(place + number * panel * inputs * size, expected.numel())
        if found != expected.numpy().tobytes():
            return 0
    return place


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
