"""Well-known open models that run here: their shapes, from which their sizes follow, and licences.

As the models' own pages and config.json files say. Sizes leave out norms and biases, which are less
than a thousandth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PERMISSIVE = ("Apache-2.0", "MIT")
FLOAT32, BFLOAT16, FOUR_BITS = "float32", "bfloat16", "Q4_K_M"
_BYTES = {FLOAT32: 4.0, BFLOAT16: 2.0}
_Q4, _Q5, _Q6, _Q8 = 4.5 / 8, 5.5 / 8, 6.5625 / 8, 8.5 / 8  # bytes of a weight, with its factors
_BLOCK = 256  # weights that a K format packs together; rows of other lengths get another one


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a network."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    is_tied: bool = True
    """Whether logits are computed with the embedding, so that there is no second one."""
    is_gated: bool = True
    """Whether a feed-forward layer has three matrices, and not two."""

    @property
    def embedding(self) -> int:
        """Weights of the embedding."""
        return self.vocabulary * self.hidden

    @property
    def body(self) -> int:
        """Weights of all layers."""
        return sum(count for count, _, _ in self._matrices())

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.body + (1 if self.is_tied else 2) * self.embedding

    @property
    def state_bytes(self) -> int:
        """Of the keys and values of a token, in bfloat16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head

    def size(self, form: str) -> int:
        """Bytes of the weights' file in a format."""
        if form in _BYTES:
            return int(_BYTES[form] * self.parameters)
        body = sum(count * _packed(row, precise) for count, row, precise in self._matrices())
        logits = _packed(self.hidden, 1.0)
        table = 0.0 if self.is_tied else _packed(self.hidden, 0.0)
        return int(body + (logits + table) * self.embedding)

    def _matrices(self) -> Iterator[tuple[int, int, float]]:
        """Weights of the layers' matrices, the length of their rows, and the share of layers in
        which a file in Q4_K_M has them in 6 bits."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        inner = self.hidden * self.ffn * self.layers
        yield self.hidden * (queries + keys) * self.layers, self.hidden, 0.0
        yield self.hidden * keys * self.layers, self.hidden, 0.5
        yield queries * self.hidden * self.layers, queries, 0.0
        yield (2 if self.is_gated else 1) * inner, self.hidden, 0.0
        yield inner, self.ffn, 0.5


def _packed(row: int, precise: float) -> float:
    """Bytes of a weight in Q4_K_M. precise: the share that has 6 bits."""
    low, high = (_Q4, _Q6) if row % _BLOCK == 0 else (_Q5, _Q8)
    return (1 - precise) * low + precise * high


@dataclass(frozen=True, slots=True)
class Listed:
    """A model of the catalogue."""

    name: str
    """On the hub."""
    family: str
    """Its `model_type`."""
    licence: str
    context: int
    """Tokens that it reads at most."""
    shape: Shape
    gguf: str = ""
    """The repository of its GGUF files; "" for an encoder."""
    thinks: bool = False
    """Whether its chat template lets it think before it answers."""
    needs_prefix: bool = False
    """Whether an encoder wants words such as "query: " before each text."""

    @property
    def is_encoder(self) -> bool:
        """Whether it gives vectors, and not text."""
        return not self.gguf

    @property
    def is_permissive(self) -> bool:
        """Whether its licence allows any use."""
        return self.licence in PERMISSIVE


_HF, _APACHE, _MIT = "HuggingFaceTB", "Apache-2.0", "MIT"

TEXT = (
    Listed(f"{_HF}/SmolLM2-135M-Instruct", "llama", _APACHE, 8_192,
           Shape(30, 576, 1536, 9, 3, 64, 49_152), "bartowski/SmolLM2-135M-Instruct-GGUF"),
    Listed("google/gemma-3-270m-it", "gemma3_text", "Gemma", 32_768,
           Shape(18, 640, 2048, 4, 1, 256, 262_144), "unsloth/gemma-3-270m-it-GGUF"),
    Listed(f"{_HF}/SmolLM2-360M-Instruct", "llama", _APACHE, 8_192,
           Shape(32, 960, 2560, 15, 5, 64, 49_152), "bartowski/SmolLM2-360M-Instruct-GGUF"),
    Listed("Qwen/Qwen2.5-0.5B-Instruct", "qwen2", _APACHE, 32_768,
           Shape(24, 896, 4864, 14, 2, 64, 151_936), "Qwen/Qwen2.5-0.5B-Instruct-GGUF"),
    Listed("Qwen/Qwen3-0.6B", "qwen3", _APACHE, 40_960,
           Shape(28, 1024, 3072, 16, 8, 128, 151_936), "unsloth/Qwen3-0.6B-GGUF", thinks=True),
    Listed("google/gemma-3-1b-it", "gemma3_text", "Gemma", 32_768,
           Shape(26, 1152, 6912, 4, 1, 256, 262_144), "unsloth/gemma-3-1b-it-GGUF"),
    Listed("meta-llama/Llama-3.2-1B-Instruct", "llama", "Llama 3.2", 131_072,
           Shape(16, 2048, 8192, 32, 8, 64, 128_256), "bartowski/Llama-3.2-1B-Instruct-GGUF"),
    Listed("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", _APACHE, 32_768,
           Shape(28, 1536, 8960, 12, 2, 128, 151_936), "Qwen/Qwen2.5-1.5B-Instruct-GGUF"),
    Listed(f"{_HF}/SmolLM2-1.7B-Instruct", "llama", _APACHE, 8_192,
           Shape(24, 2048, 8192, 32, 32, 64, 49_152), "bartowski/SmolLM2-1.7B-Instruct-GGUF"),
    Listed("ibm-granite/granite-3.3-2b-instruct", "granite", _APACHE, 131_072,
           Shape(40, 2048, 8192, 32, 8, 64, 49_159), "ibm-granite/granite-3.3-2b-instruct-GGUF"),
    Listed(f"{_HF}/SmolLM3-3B", "smollm3", _APACHE, 65_536,
           Shape(36, 2048, 11_008, 16, 4, 128, 128_256), "ggml-org/SmolLM3-3B-GGUF", thinks=True),
    Listed("microsoft/Phi-4-mini-instruct", "phi3", _MIT, 131_072,
           Shape(32, 3072, 8192, 24, 8, 128, 200_064), "unsloth/Phi-4-mini-instruct-GGUF"),
    Listed("Qwen/Qwen3-4B-Instruct-2507", "qwen3", _APACHE, 262_144,
           Shape(36, 2560, 9728, 32, 8, 128, 151_936), "unsloth/Qwen3-4B-Instruct-2507-GGUF"),
    Listed("mistralai/Mistral-7B-Instruct-v0.3", "mistral", _APACHE, 32_768,
           Shape(32, 4096, 14_336, 32, 8, 128, 32_768, False),
           "bartowski/Mistral-7B-Instruct-v0.3-GGUF"),
    Listed("meta-llama/Llama-3.1-8B-Instruct", "llama", "Llama 3.1", 131_072,
           Shape(32, 4096, 14_336, 32, 8, 128, 128_256, False),
           "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
    Listed("Qwen/Qwen3-8B", "qwen3", _APACHE, 40_960,
           Shape(36, 4096, 12_288, 32, 8, 128, 151_936, False), "Qwen/Qwen3-8B-GGUF",
           thinks=True),
)  # fmt: skip
"""Models that answer, by size."""


def _bert(layers: int, hidden: int, vocabulary: int = 30_522) -> Shape:
    heads = hidden // 32 if hidden < 768 else hidden // 64
    head = hidden // heads
    return Shape(layers, hidden, 4 * hidden, heads, heads, head, vocabulary, is_gated=False)


_MODERN = Shape(22, 768, 1152, 12, 12, 64, 50_368)

ENCODERS = (
    Listed("sentence-transformers/all-MiniLM-L6-v2", "bert", _APACHE, 256, _bert(6, 384)),
    Listed("sentence-transformers/all-MiniLM-L12-v2", "bert", _APACHE, 128, _bert(12, 384)),
    Listed("BAAI/bge-small-en-v1.5", "bert", _MIT, 512, _bert(12, 384)),
    Listed("BAAI/bge-base-en-v1.5", "bert", _MIT, 512, _bert(12, 768)),
    Listed("Alibaba-NLP/gte-modernbert-base", "modernbert", _APACHE, 8_192, _MODERN),
    Listed("ibm-granite/granite-embedding-english-r2", "modernbert", _APACHE, 8_192, _MODERN),
    Listed("intfloat/e5-small-v2", "bert", _MIT, 512, _bert(12, 384), needs_prefix=True),
    Listed("intfloat/multilingual-e5-small", "bert", _MIT, 512, _bert(12, 384, 250_037),
           needs_prefix=True),
    Listed("nomic-ai/modernbert-embed-base", "modernbert", _APACHE, 8_192, _MODERN,
           needs_prefix=True),
)  # fmt: skip
"""Models that give vectors. Of several that are here, the first is the default embedder; not one
that needs a prefix."""


def find_listed(name: str) -> Listed | None:
    """The model of the catalogue with a name, or None."""
    return next((each for each in (*TEXT, *ENCODERS) if each.name == name), None)
