"""Networks with random weights, for benchmarks and tests of speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from relquery.errors import ModelError, did_you_mean

END = "<|end|>"


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


def build_network(
    spec: RandomSpec, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype
) -> PreTrainedModel:
    """A seeded network whose vocabulary is the tokenizer's."""
    heads = spec.heads or max(1, spec.hidden // 64)
    kv_heads = spec.kv_heads or heads
    sizes = (spec.layers, spec.hidden, spec.context)
    if min(sizes) < 1 or spec.hidden % (2 * heads) or heads % kv_heads:
        raise ModelError(
            f"No network can have this shape: layers={spec.layers}, hidden={spec.hidden}, "
            f"heads={heads}, kv_heads={kv_heads}, context={spec.context}. Each must be at least 1, "
            "hidden a multiple of twice the heads, and heads a multiple of kv_heads."
        )
    try:
        config = LlamaConfig(
            hidden_size=spec.hidden,
            intermediate_size=spec.ffn or 4 * spec.hidden,
            num_hidden_layers=spec.layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=spec.context,
            vocab_size=len(tokenizer),
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            tie_word_embeddings=True,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            network: Any = LlamaForCausalLM(config)
            return cast(PreTrainedModel, network.to(dtype))
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"No network can have this shape ({spec}): {error}") from error


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte."""
    return train_tokenizer((), vocabulary=0)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer trained on `texts`, with at most `vocabulary` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max(vocabulary, 257),
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrap: Any = PreTrainedTokenizerFast
    return cast(PreTrainedTokenizerBase, wrap(tokenizer_object=tokenizer, eos_token=END))
