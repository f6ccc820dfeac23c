"""The files that all sides open: GGUF in a format, with a tokenizer from another file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGUFWriter, quants
from gguf import GGMLQuantizationType as Format

from relquery.model.formats.gguf import GgufFile, read_gguf

Tensor = tuple[str, npt.NDArray[Any], Format]
EMBEDDING = "token_embd.weight"
_SIZE = 0.02
"""Standard deviation of random weights."""
_LOGITS = 0.1
"""The same of random embeddings, with which answers do not depend on the last bits."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama whose head is its embedding. kv_heads: of keys and values."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of a layer's matrices, by their names in files."""
        kept = self.hidden // self.heads * self.kv_heads
        return {
            "attn_q": (self.hidden, self.hidden),
            "attn_k": (kept, self.hidden),
            "attn_v": (kept, self.hidden),
            "attn_output": (self.hidden, self.hidden),
            "ffn_gate": (self.inner, self.hidden),
            "ffn_up": (self.inner, self.hidden),
            "ffn_down": (self.hidden, self.inner),
        }

    def metadata(self) -> dict[str, int]:
        """What a file says of it."""
        return {
            "llama.block_count": self.layers,
            "llama.embedding_length": self.hidden,
            "llama.feed_forward_length": self.inner,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.rope.dimension_count": self.hidden // self.heads,
        }


def requantise(source: Path, path: Path, form: str) -> None:
    """Write a file's network in another format; vectors as they are."""
    file = read_gguf(source)

    def tensors() -> Iterable[Tensor]:
        for name, weight in file.weights.items():
            kept = Format[form] if len(weight.shape) > 1 else Format.F32
            yield name, quants.quantize(weight.floats(), kept), kept

    _write(path, file.metadata, tensors())


def write_random(source: Path, path: Path, shape: Shape, form: str, seed: int) -> None:
    """Write a network with random weights in a format, with the tokenizer of a file.

    Its blocks are drawn as they are stored. Its embedding is in Q8_0, as in files of few bits.
    """
    file, rng = read_gguf(source), np.random.default_rng(seed)
    vocabulary = file.weights[EMBEDDING].shape[0]
    ones = np.ones(shape.hidden, np.float32)

    def tensors() -> Iterable[Tensor]:
        yield EMBEDDING, _blocks(rng, vocabulary, shape.hidden, "Q8_0", _LOGITS), Format.Q8_0
        for layer in range(shape.layers):
            for name, (rows, width) in shape.weights().items():
                drawn = _blocks(rng, rows, width, form, _SIZE)
                yield f"blk.{layer}.{name}.weight", drawn, Format[form]
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{layer}.{name}.weight", ones, Format.F32
        yield "output_norm.weight", ones, Format.F32

    _write(path, file.metadata | shape.metadata(), tensors())


def _blocks(
    rng: np.random.Generator, rows: int, width: int, form: str, size: float
) -> npt.NDArray[np.uint8]:
    """Random weights of about this standard deviation, as their bytes (rows, bytes of a row)."""
    block, length = GGML_QUANT_SIZES[Format[form]]
    drawn = rng.integers(0, 256, (rows, width // block, length), np.uint8)
    spread, middle = {"Q8_0": (73.9, -0.5), "Q4_1": (4.61, 7.5)}[form]
    scale = np.float16(size / spread)
    drawn[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
    if form == "Q4_1":
        least = np.float16(-middle * size / spread)
        drawn[..., 2:4] = np.frombuffer(least.tobytes(), np.uint8)
    return drawn.reshape(rows, -1)


def _write(path: Path, metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> None:
    told = dict(metadata)
    writer = GGUFWriter(path, told.pop("general.architecture"))
    for key, value in told.items():
        match value:
            case list():
                writer.add_array(key, value)
            case str():
                writer.add_string(key, value)
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case _:
                writer.add_float32(key, value)
    for name, numbers, form in tensors:
        writer.add_tensor(name, numbers, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a forward pass has to do with a file's weights.

    bytes: that one reads; rows of the embedding alone are read beside its head. layers, head:
    numbers of the matrices that a token is multiplied with in layers, and at its end.
    """

    bytes: int
    layers: int
    head: int


def weigh(file: GgufFile) -> Weighed:
    """The weights of a file."""
    sizes = {name: math.prod(weight.shape) for name, weight in file.weights.items()}
    head = "output.weight" if "output.weight" in sizes else EMBEDDING
    read = {name: weight for name, weight in file.weights.items() if name in (head, *_layers(file))}
    return Weighed(
        sum(len(weight.bytes) for weight in read.values()),
        sum(sizes[name] for name in _layers(file)),
        sizes[head],
    )


def _layers(file: GgufFile) -> list[str]:
    return [
        name for name, each in file.weights.items() if name[:4] == "blk." and len(each.shape) > 1
    ]
