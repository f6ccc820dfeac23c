"""Networks with random weights, for benchmarks and tests of speed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from relquery.errors import ModelError, did_you_mean
from relquery.model.formats.safetensors import Weight, Weights
from relquery.model.text.tokenizer import Tokenizer

END = "<|end|>"
SPREAD = np.float32(0.02)
"""Standard deviation of the weights, with which Llama's training begins, too."""


@dataclass(frozen=True, slots=True)
class RandomSpec:
    """Shape of a Llama network: "random:layers=8,hidden=256,heads=4".

    Zeros mean the defaults: heads = hidden / 64, kv_heads = heads, ffn = 4 * hidden.
    """

    layers: int = 8
    hidden: int = 256
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    context: int = 65_536
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> RandomSpec:
        """Read the form above. Raises ModelError."""
        names = [field.name for field in fields(cls)]
        values: dict[str, int] = {}
        for item in filter(None, text.removeprefix("random:").split(",")):
            name, _, value = item.partition("=")
            if name not in names or not value.isdigit():
                raise ModelError(
                    f"Expected NAME=INTEGER, got '{item}' in '{text}'. "
                    f"Settings: {', '.join(names)}.{did_you_mean(name, names)}"
                )
            values[name] = int(value)
        return cls(**values)

    def config(self, vocabulary: int) -> dict[str, object]:
        """As config.json describes it. Raises ModelError for a shape that no network can have."""
        heads = self.heads or max(1, self.hidden // 64)
        kv_heads = self.kv_heads or heads
        sizes = (self.layers, self.hidden, self.context)
        if min(sizes) < 1 or self.hidden % (2 * heads) or heads % kv_heads:
            raise ModelError(
                f"No network can have this shape: layers={self.layers}, hidden={self.hidden}, "
                f"heads={heads}, kv_heads={kv_heads}, context={self.context}. Each must be at "
                "least 1, hidden a multiple of twice the heads, and heads a multiple of kv_heads."
            )
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn or 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": self.context,
            "vocab_size": vocabulary,
            "tie_word_embeddings": True,
        }


class RandomWeights(Weights):
    """The weights of such a network, each made where it is needed."""

    def __init__(self, spec: RandomSpec, vocabulary: int) -> None:
        self._spec = spec
        self._shapes = dict(_shapes(spec, vocabulary))
        super().__init__({})

    def take(self, name: str) -> Weight | None:
        """A weight that need not be there."""
        shape = self._shapes.get(name)
        if shape is None:
            return None
        if len(shape) == 1:
            return Weight(0, shape, np.ones(shape, dtype=np.float32).view(np.uint8))
        seed = hashlib.sha256(f"{self._spec.seed} {name}".encode()).digest()
        drawn = np.random.Generator(np.random.Philox(int.from_bytes(seed[:8], "little")))
        numbers = drawn.standard_normal(shape, dtype=np.float32)
        numbers *= SPREAD
        return Weight(0, shape, numbers.reshape(-1).view(np.uint8))

    def digest(self) -> bytes:
        """Of all weights."""
        return hashlib.sha256(repr((self._spec, self._shapes)).encode()).digest()

    beginnings = digest

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def _shapes(spec: RandomSpec, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of its weights."""
    config = spec.config(vocabulary)
    hidden, heads = spec.hidden, int(str(config["num_attention_heads"]))
    inner, keys = (
        int(str(config["intermediate_size"])),
        int(str(config["num_key_value_heads"])) * hidden // heads,
    )
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for number in range(spec.layers):
        name = f"model.layers.{number}"
        for each, rows in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            yield f"{name}.self_attn.{each}_proj.weight", (rows, hidden)
        for each in ("gate", "up"):
            yield f"{name}.mlp.{each}_proj.weight", (inner, hidden)
        yield f"{name}.mlp.down_proj.weight", (hidden, inner)
        for each in ("input", "post_attention"):
            yield f"{name}.{each}_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


def byte_tokenizer() -> Tokenizer:
    """One token per byte."""
    return train_tokenizer((), vocabulary=0)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer trained on `texts`, with at most `vocabulary` tokens."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max(vocabulary, 257),
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, {"eos_token": END})
