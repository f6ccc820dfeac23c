"""Weights in an order of memory that products read fastest: oneDNN's, or our own.

oneDNN's products of bfloat16 are fast on processors that multiply such numbers. On others they take
seven times as long as those of float32; there the weights are in our own order, and our kernel,
which widens the numbers in registers, computes all products.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from relquery.model.kernels import panels as kernel
from relquery.model.kernels.arguments import KINDS, Arguments
from relquery.model.kernels.threads import threads
from relquery.native import has_pairs, has_tiles

_ONEDNN: Any = torch.ops.mkldnn
FEW = 4
"""Few rows are padded to a multiple of these, which a tile of our kernel holds."""
LONG = 128
"""Rows by which a long step is padded at most."""
ALONE = 1 << 16
"""Numbers of a weight that one thread reads sooner than several begin."""


def padded_rows(rows: int) -> int:
    """Rows that a product should have if `rows` are needed.

    oneDNN makes code for each number of rows: 0.2 to 0.4 ms and half a megabyte per weight's shape,
    which it keeps. So few rows are padded to a multiple of FEW, up to 256 to a multiple of 16, and
    more by one in sixteen at most, to a multiple of up to LONG.
    """
    if rows <= FEW:
        return 1 << (rows - 1).bit_length() if rows else 0
    sixteenth = (1 << (rows - 1).bit_length()) // 32
    step = FEW if rows <= kernel.MOST else min(max(16, sixteenth), LONG)
    return -(-rows // step) * step


def can_pack(weight: Tensor) -> bool:
    """Whether products with packed weights of this kind and shape gain here."""
    return _order_of(weight) is not _Plain


class PackedWeight:
    """The weight (outputs, inputs) and bias of one linear layer, or of several with one input.

    It stays as it is where `can_pack` says no.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._stored: _Stored = _order_of(weight)(weight)
        self.bias = bias
        self.outputs, self.count, self.nbytes = len(weight), weight.numel(), self._stored.nbytes
        fits = self._stored.width == kernel.TILE_WIDTH and weight.shape[1] % kernel.TILE_DEEP == 0
        self._in_tiles = fits and weight.dtype == torch.bfloat16 and has_tiles()

    def __call__(self, rows: Tensor) -> Tensor:
        """Products (..., outputs) of rows (..., inputs)."""
        few = rows.reshape(-1, rows.shape[-1])
        if 0 < len(few) <= self._stored.most:
            return self._multiply(few).view(*rows.shape[:-1], self.outputs)
        return self._stored.multiply(rows, self.bias)

    @property
    def is_ours(self) -> bool:
        """Whether our own kernel can compute products of up to `panels.MOST` rows."""
        return self._stored.panels != 0

    def gates(self, rows: int) -> bool:
        """Whether our own kernel computes the products of so many rows, and can gate them."""
        whole = self._stored.width and self.outputs % (2 * self._stored.width) == 0
        return bool(whole) and 0 < rows <= self._stored.most

    def gated(self, rows: Tensor, activation: int) -> Tensor:
        """activation(first half of the products) * second half, for rows that `gates` allows."""
        return self._multiply(rows, activation)

    def arguments(
        self, rows: Tensor, result: Tensor, work: Tensor, activation: int | None = None
    ) -> Arguments:
        """What our own kernel is told. rows, result: contiguous. work: memory of its threads.

        activation: None for plain products.
        """
        a = Arguments(kernel.ARGUMENTS)
        a[kernel.GATED], a[kernel.ACTIVATION] = activation is not None, activation or 0
        a[kernel.KIND], a[kernel.ROWS] = KINDS[rows.dtype], rows.shape[0]
        a[kernel.INPUTS], a[kernel.OUTPUTS] = rows.shape[1], self.outputs
        a[kernel.SOURCE], a[kernel.MATRIX] = rows.data_ptr(), self._stored.panels
        a[kernel.WIDTH], a[kernel.TILED] = self._stored.width, self._in_tiles
        a[kernel.BIAS] = 0 if self.bias is None else self.bias.data_ptr()
        a[kernel.RESULT], a[kernel.WORK] = result.data_ptr(), work.data_ptr()
        return a

    def _multiply(self, rows: Tensor, activation: int | None = None) -> Tensor:
        """Products by our own kernel, gated if there is an activation."""
        rows = rows.contiguous()
        width = self.outputs if activation is None else self.outputs // 2
        result = rows.new_empty(rows.shape[0], width)
        workers = threads() if self.count > ALONE else 1
        work = torch.empty(workers * kernel.WORK_BYTES, dtype=torch.uint8)
        kernel.MULTIPLY.run(self.arguments(rows, result, work, activation), workers)
        return result

    def dense(self) -> Tensor:
        """The weight as the network had it."""
        return self._stored.dense()


class _Stored(Protocol):
    """A weight in some order.

    nbytes: its memory. panels: where its numbers are as our own kernel reads them; 0 if they are
    not. width: outputs of a panel. most: rows of which our own kernel computes the products.
    """

    nbytes: int
    panels: int
    width: int
    most: int

    def multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Products of any number of rows."""

    def dense(self) -> Tensor:
        """The weight (outputs, inputs)."""


class _Plain:
    """A weight as the network had it."""

    panels, width, most = 0, 0, 0

    def __init__(self, weight: Tensor) -> None:
        self._weight, self.nbytes = weight, weight.nbytes

    def multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.linear(rows, self._weight, bias)

    def dense(self) -> Tensor:
        return self._weight


class _OneDNN:
    """A weight in oneDNN's order, which our own kernel can often read, too."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = _ONEDNN._reorder_linear_weight(weight)
        self.nbytes = weight.nbytes
        self.panels, self.width = _panels_of(self._weight, weight)
        self.most = kernel.MOST if self.panels else 0

    def multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        product = _ONEDNN._linear_pointwise(rows, self._weight, bias, "none", [], "")
        return cast(Tensor, product)

    def dense(self) -> Tensor:
        return cast(Tensor, self._weight.to_dense())


class _Panels:
    """A bfloat16 weight in our own order: panels (inputs / 2, PANEL, 2), the last one filled up."""

    most = 1 << 62
    width = kernel.PANEL

    def __init__(self, weight: Tensor) -> None:
        self._shape = outputs, inputs = weight.shape
        panel = kernel.PANEL
        count = -(-outputs // panel)
        self._weight = weight.new_zeros(count, inputs // 2, panel, 2)
        for number in range(count):
            part = weight[number * panel : (number + 1) * panel]
            self._weight[number, :, : len(part)] = part.view(len(part), -1, 2).transpose(0, 1)
        self.nbytes, self.panels = self._weight.nbytes, self._weight.data_ptr()

    def multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.linear(rows, self.dense(), bias)

    def dense(self) -> Tensor:
        return self._weight.transpose(1, 2).reshape(-1, self._shape[1])[: self._shape[0]]


def _order_of(weight: Tensor) -> type[_Plain | _OneDNN | _Panels]:
    """The order in which a weight is read fastest here."""
    if weight.device.type != "cpu" or not weight.numel():
        return _Plain
    is_slow = weight.dtype == torch.bfloat16 and not (has_pairs() and _packs(weight.dtype))
    if is_slow and weight.shape[1] % 2 == 0:
        return _Panels
    return _OneDNN if _packs(weight.dtype) else _Plain


@cache
def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs such weights. Found by trying: builds of torch differ."""
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


def _panels_of(packed: Tensor, weight: Tensor) -> tuple[int, int]:
    """Where the numbers of a packed weight are, if they lie as our own kernel reads them, and the
    width of a panel; else zeros.

    oneDNN chooses the order by machine, type and shape, and does not tell it. Here some of it is
    compared: all panels of a weight are alike.
    """
    outputs, inputs = weight.shape
    size, together = weight.element_size(), 4 // weight.element_size()
    try:
        place, count = int(_ONEDNN.data_ptr(packed)), int(_ONEDNN._nbytes(packed))
    except AttributeError:  # not in this build of torch
        return 0, 0
    if inputs % together or count != weight.nbytes:
        return 0, 0
    for width in kernel.PANEL, kernel.PANEL // 2:
        if outputs % width == 0 and all(
            ctypes.string_at(place + number * width * inputs * size, width * inputs * size)
            == _panel(weight[number * width : (number + 1) * width], together)
            for number in {0, outputs // width // 2, outputs // width - 1}
        ):
            return place, width
    return 0, 0


def _panel(part: Tensor, together: int) -> bytes:
    """The weight of some outputs as a panel. together: inputs of an output that are neighbours."""
    numbers = part.contiguous().view(torch.int8).view(len(part), -1, 4)
    assert numbers.shape[1] * together == part.shape[1]
    return numbers.transpose(0, 1).contiguous().numpy().tobytes()
