"""Matrices of a folder in few bits: GPTQ, AWQ and compressed-tensors, as blocks of the kernels.

A number is (code - zero point) * scale, by the scale and the zero point of its group. Blocks hold
the scale and its product with the zero point in float32, which are exact where the scale is in 16
bits, and so is each number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery.errors import ModelError
from relquery.model.formats.gguf import FORMATS
from relquery.model.formats.quantization import CodeLayout, Coding
from relquery.model.formats.safetensors import CODES, Weight, Weights, read_files, widen

_FORMATS = {name: number for number, (name, _, _) in enumerate(FORMATS)}
BLOCK = 32
"""Numbers of a block."""
_TURNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of the eight outputs in a word of AWQ, which one each four bits hold, from the lowest on."""
_COMPRESSED = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx")
_NAMES = {
    CodeLayout.PACKED: _COMPRESSED,
    CodeLayout.PLAIN: ("weight", *_COMPRESSED[1:]),
    CodeLayout.GPTQ: ("qweight", "scales", "qzeros", "g_idx"),
    CodeLayout.AWQ: ("qweight", "scales", "qzeros", "g_idx"),
}
"""Names in files of codes, scales, zero points and the group of each input."""
_OF_ACTIVATIONS = ("input_scale", "input_zero_point")
"""Names of what activations would be rounded by, which is not computed."""
_STRIP = 32
"""Columns that are transposed at a time."""
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Codes of a matrix, and what they mean."""

    bits: int
    codes: Bytes
    """(outputs, bytes) of 4 bits from 0 to 15, two in a byte, the first in its lower half, or of 8
    from -128 to 127."""
    scales: npt.NDArray[np.float32]
    """(outputs, groups)."""
    zeros: npt.NDArray[np.int16]
    """(outputs, groups), of which codes are taken to be 0."""
    groups: npt.NDArray[np.int64]
    """(inputs,)."""

    def weight(self) -> Weight:
        """The matrix in blocks, or as float32 where a block would have inputs of two groups."""
        outputs, inputs = len(self.codes), len(self.groups)
        blocks = self.groups[: inputs // BLOCK * BLOCK].reshape(-1, BLOCK)
        if inputs % BLOCK or (blocks != blocks[:, :1]).any():
            return Weight(0, (outputs, inputs), self.floats().view(np.uint8).reshape(-1))
        has_offsets = self.bits == 4 or bool(self.zeros.any())
        fields = [("factor", "<f4"), *([("offset", "<f4")] if has_offsets else [])]
        size = BLOCK * self.bits // 8
        packed = np.empty((outputs, len(blocks)), dtype=[*fields, ("codes", f"V{size}")])
        packed["factor"] = self.scales[:, blocks[:, 0]]
        if has_offsets:
            packed["offset"] = (self.scales * self.zeros)[:, blocks[:, 0]]
        packed["codes"] = np.ascontiguousarray(self.codes).view(f"V{size}")
        kind = _FORMATS[f"{'AFFINE' if has_offsets else 'SCALED'}_{self.bits}"]
        return Weight(kind, (outputs, inputs), packed.view(np.uint8).reshape(-1))

    def floats(self) -> npt.NDArray[np.float32]:
        """Its numbers (outputs, inputs)."""
        codes = _halves(self.codes) if self.bits == 4 else self.codes.view(np.int8)
        values = codes.astype(np.float32)
        values -= self.zeros[:, self.groups]
        values *= self.scales[:, self.groups]
        return values


class CodedWeights(Weights):
    """The weights of a folder, whose matrices in few bits are brought into blocks where they are
    needed. Which ones those are its files say."""

    def __init__(self, folder: Path, coding: Coding) -> None:
        super().__init__(*read_files(folder, CODES))
        self._coding = coding
        codes = _NAMES[coding.layout][0]
        if not any(
            name.endswith(f".{codes}") and each.kind < 0 for name, each in self._weights.items()
        ):
            raise ModelError(
                f"The config.json in {folder} says that weights are in few bits, and none are. Use "
                "the config.json that belongs to them."
            )

    def take(self, name: str) -> Weight | None:
        """A weight that need not be there. Raises ValueError for sizes that do not fit together."""
        module, _, what = name.rpartition(".")
        if what == "weight":
            codes = super().take(f"{module}.{_NAMES[self._coding.layout][0]}")
            if codes is not None and codes.kind < 0:
                self._read |= {f"{module}.{each}" for each in _OF_ACTIVATIONS}
                with np.errstate(all="ignore"):  # what is not finite shows in a forward pass
                    return self._matrix(module, codes).weight()
        return super().take(name)

    def _matrix(self, module: str, held: Weight) -> Matrix:
        coding = self._coding
        of_codes, of_scales, of_zeros, of_groups = _NAMES[coding.layout]
        codes = _codes(coding, _whole(held, f"{module}.{of_codes}"))
        outputs, inputs = len(codes), codes.shape[1] * 8 // coding.bits
        size = coding.group or max(inputs, 1)
        count = -(-inputs // size)
        shape = (outputs, count)
        scales = self._scales(f"{module}.{of_scales}", shape)
        zeros = np.full(shape, 8 if coding.bits == 4 else 0, dtype=np.int16)
        if coding.has_zeros or f"{module}.{of_zeros}" in self._weights:
            name = f"{module}.{of_zeros}"
            zeros = _zeros(coding, _whole(self[name], name), shape)
        groups = np.arange(inputs) // size
        if coding.has_order or f"{module}.{of_groups}" in self._weights:
            name = f"{module}.{of_groups}"
            groups = _whole(self[name], name).astype(np.int64)
        if zeros.shape != shape:
            raise ValueError(f"{module}.{of_zeros} is of {zeros.shape} and not of {shape}")
        if groups.shape != (inputs,):
            raise ValueError(f"{module}.{of_groups} is of {groups.shape} and not of {inputs}")
        if inputs and not 0 <= groups.min() <= groups.max() < count:
            raise ValueError(f"{module}.{of_groups} names a group that is not there")
        return Matrix(coding.bits, codes, scales, zeros, groups)

    def _scales(self, name: str, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
        """Scales (outputs, groups)."""
        held = self[name]
        if held.kind < 0:
            raise ValueError(f"{name} has whole numbers")
        scales = widen(held.bytes, held.kind).reshape(held.shape)
        if self._coding.layout in (CodeLayout.GPTQ, CodeLayout.AWQ):
            scales = scales.T
        elif scales.size == 1:
            scales = np.broadcast_to(scales.reshape(1, 1), shape)  # of all numbers
        if scales.shape != shape:
            raise ValueError(f"{name} is of {scales.shape} and not of {shape}")
        return scales


def _whole(held: Weight, name: str) -> npt.NDArray[Any]:
    """Whole numbers as they are in a file."""
    if held.kind >= 0:
        raise ValueError(f"{name} has no whole numbers")
    return held.bytes.view(f"<i{-held.kind}").reshape(held.shape)


def _codes(coding: Coding, held: npt.NDArray[Any]) -> Bytes:
    """Codes as Matrix has them."""
    if held.ndim != 2 or held.dtype.itemsize != (1 if coding.layout is CodeLayout.PLAIN else 4):
        raise ValueError(f"codes are in {held.ndim} dimensions of {held.dtype}")
    if coding.layout is CodeLayout.PLAIN:
        return held.view(np.uint8)
    words: Words = held.view(np.uint32)
    if coding.layout is CodeLayout.AWQ:
        if len(words) % 2:
            raise ValueError(f"codes of AWQ are of {len(words)} inputs, an odd number")
        return _turned(words)
    if coding.layout is CodeLayout.GPTQ:
        words = _transposed(words)
    codes = words.view(np.uint8)
    return codes if coding.bits == 4 else codes ^ np.uint8(128)


def _turned(words: Words) -> Bytes:
    """Codes of AWQ (inputs, outputs / 8), row by row: (outputs, inputs / 2)."""
    low, other = words[::2], words[1::2]
    lower, upper = np.uint32(0x0F0F0F0F), np.uint32(0xF0F0F0F0)
    both = np.empty((*low.shape, 2), dtype=np.uint32)
    both[..., 0] = low & lower | (other & lower) << 4
    both[..., 1] = (low & upper) >> 4 | other & upper
    # Eight bytes are of the outputs of a word: of every second four bits, then of those between.
    eights = _transposed(both.view(np.uint64)[..., 0]).view(np.uint8).reshape(-1, len(low), 8)
    codes = np.empty((len(eights), 8, len(low)), dtype=np.uint8)
    for index, turn in enumerate(_TURNS):
        codes[:, _TURNS[turn]] = eights[..., index]
    return codes.reshape(-1, len(low))


def _transposed(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A matrix whose rows are the columns of another, some at a time: what lies a power of two
    apart shares few places in a processor's cache."""
    result = np.empty(words.shape[::-1], words.dtype)
    for index in range(0, len(result), _STRIP):
        result[index : index + _STRIP] = words[:, index : index + _STRIP].copy().T
    return result


def _zeros(coding: Coding, held: npt.NDArray[Any], shape: tuple[int, int]) -> npt.NDArray[np.int16]:
    """Zero points (outputs, groups)."""
    if held.dtype.itemsize == 1 and coding.layout in (CodeLayout.PLAIN, CodeLayout.PACKED):
        zeros = held.astype(np.int16) + np.int16(8 if coding.bits == 4 else 0)
        return np.broadcast_to(zeros.reshape(1, 1), shape) if zeros.size == 1 else zeros
    words = held.view(np.uint32)
    if coding.layout is CodeLayout.PACKED:
        words = words.T
    if coding.is_less:  # whole words, as the library that wrote them took 1 from those
        words = words + np.uint32(0x11111111 if coding.bits == 4 else 0x01010101)
    numbers = np.ascontiguousarray(words).view(np.uint8)
    if coding.bits == 4:
        numbers = _halves(numbers)
    if coding.layout is CodeLayout.AWQ:
        eights = numbers.reshape(len(numbers), numbers.shape[1] // 8, 8)
        numbers = eights[..., np.argsort(_TURNS)].reshape(numbers.shape)
    return numbers.T[: shape[0]].astype(np.int16) - np.int16(0 if coding.bits == 4 else 128)


def _halves(found: Bytes) -> Bytes:
    """The codes of 4 bits in bytes, the lower ones first."""
    return np.stack((found & 15, found >> 4), axis=-1).reshape(len(found), 2 * found.shape[1])
