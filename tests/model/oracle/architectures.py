"""Tiny networks of the architectures that must work, and engines on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers as tf

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.clock import RealClock
from relquery.engine.loop import Loop
from relquery.engine.request.request import Request
from relquery.model.attention.batch import PackedBatch
from relquery.model.forward.stock import Forward
from relquery.model.torch_executor import TorchExecutor

VOCABULARY = 97
CONTEXT = 256
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA_LIKE: dict[str, Any] = COMMON | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SLIDING: dict[str, Any] = LLAMA_LIKE | {"sliding_window": 16}
GEMMA: dict[str, Any] = SLIDING | {"head_dim": 8, "query_pre_attn_scalar": 8}
ONE_OF_EACH = ["sliding_attention", "full_attention"]

NETWORKS: dict[str, Callable[[], Any]] = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA_LIKE)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**LLAMA_LIKE, head_dim=8)),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**COMMON, n_embd=32, n_layer=2, n_head=4)),
    "opt": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(
            **COMMON,
            hidden_size=32,
            word_embed_proj_dim=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    ),
    "gemma3": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**GEMMA, layer_types=ONE_OF_EACH)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**GEMMA, layer_types=ONE_OF_EACH)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**SLIDING)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**LLAMA_LIKE)),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(
        tf.GPTNeoXConfig(
            **COMMON,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    ),
}


ALIBI: dict[str, Callable[[], Any]] = {
    "bloom": lambda: tf.BloomForCausalLM(
        tf.BloomConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            n_layer=2,
            n_head=6,  # slopes of a count that is no power of two are another formula
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    ),
    "mpt": lambda: tf.MptForCausalLM(
        tf.MptConfig(vocab_size=VOCABULARY, d_model=48, n_layers=2, n_heads=6, max_seq_len=CONTEXT)
    ),
}
"""Networks with adapters, whose positions are biases."""


def falcon(**settings: Any) -> Callable[[], Any]:
    """A Falcon with rotary positions."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 48, "ffn_hidden_size": 64}
    counts = {"num_hidden_layers": 2, "num_attention_heads": 6, "alibi": False}
    shape: dict[str, Any] = sizes | counts | settings
    return lambda: tf.FalconForCausalLM(
        tf.FalconConfig(**shape, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2)
    )


FALCON: dict[str, Callable[[], Any]] = {
    "falcon": falcon(multi_query=True),
    "falcon_grouped": falcon(new_decoder_architecture=True, num_kv_heads=2),
    "falcon_many": falcon(multi_query=False, parallel_attn=False, bias=True),
}
"""As Falcon 7B, as Falcon 40B, and with keys of its own for each head."""


def llama_with_rope(rope_type: str, **parameters: Any) -> Callable[[], Any]:
    """A Llama whose frequencies are scaled; parameters: of its `rope_type`."""
    rope = {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0} | parameters
    return lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA_LIKE, rope_parameters=rope))


SCALED_ROPE: dict[str, Callable[[], Any]] = {
    "linear": llama_with_rope("linear"),
    "yarn": llama_with_rope("yarn", original_max_position_embeddings=64),
    "llama3": llama_with_rope(
        "llama3",
        original_max_position_embeddings=64,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    ),
    "dynamic": llama_with_rope("dynamic"),
    "longrope": llama_with_rope(
        "longrope",
        original_max_position_embeddings=64,
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[1.5, 2.0, 3.0, 4.0],
    ),
}

OTHER_ROTARY: dict[str, Callable[[], Any]] = {
    "phi3_partial": lambda: tf.Phi3ForCausalLM(
        tf.Phi3Config(
            **LLAMA_LIKE | {"hidden_size": 64},
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.75,
            },
        )
    ),
    "gpt_neox_partial": lambda: tf.GPTNeoXForCausalLM(
        tf.GPTNeoXConfig(
            **COMMON,
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.25,
            },
        )
    ),
    "cohere": lambda: tf.CohereForCausalLM(tf.CohereConfig(**LLAMA_LIKE)),
    "smollm3": lambda: tf.SmolLM3ForCausalLM(
        tf.SmolLM3Config(**LLAMA_LIKE | {"num_hidden_layers": 4}, no_rope_layers=[1, 1, 1, 0])
    ),
}

ALL = NETWORKS | ALIBI | FALCON | SCALED_ROPE | OTHER_ROTARY


class NoTokenizer:
    """What `prepare` asks of a tokenizer, where prompts are token ids already."""

    eos_token_id = None


def build(name: str) -> Any:
    """A seeded network whose own generation never ends early."""
    torch.manual_seed(0)
    network = ALL[name]().eval()
    # Large enough weights that greedy choices differ from token to token.
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    network.generation_config.eos_token_id = None
    return network


def prompts_with_shared_prefixes(count: int, seed: int = 0) -> list[TokenIds]:
    """Random prompts of 2 to 70 tokens that begin with parts of one common text."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(3, VOCABULARY, 40)
    return [
        np.concatenate(
            (shared[: rng.integers(1, 41)], rng.integers(3, VOCABULARY, rng.integers(1, 31)))
        ).astype(np.int32)
        for _ in range(count)
    ]


@torch.inference_mode()
def generated(network: Any, prompt: TokenIds, tokens: int) -> list[int]:
    """What `transformers` itself generates, one request at a time."""
    ids = torch.from_numpy(prompt).long()[None]
    output = network.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False
    )
    return list(output[0, len(prompt) :].tolist())


def engine_of(forward: Forward, **limits: Any) -> Loop:
    """An engine on a prepared network; limits: see EngineConfig."""
    config = EngineConfig(**({"cache_tokens": 4096} | limits))
    slots = config.cache_tokens // config.block_size * config.block_size
    return Loop(TorchExecutor(forward, slots, config.segment_sharing), config, RealClock())


def finished(engine: Loop, requests: Iterable[Request]) -> Iterator[Request]:
    """Submit and run; the pool must be in order after every step."""
    for request in requests:
        engine.submit(request)
    while engine.waiting or engine.running:
        yield from engine.step()
        engine.pool.check()


def answers(
    forward: Forward,
    prompts: Sequence[TokenIds],
    tokens: int,
    order: Sequence[int] | None = None,
    **limits: Any,
) -> list[list[int]]:
    """Greedy outputs by prompt, submitted in `order`."""
    requests = [Request(i, prompts[i], tokens) for i in order or range(len(prompts))]
    outputs = {
        request.id: request.output for request in finished(engine_of(forward, **limits), requests)
    }
    return [outputs[i] for i in range(len(prompts))]


@contextmanager
def failing_second_layer() -> Iterator[None]:
    """A second layer that stores its keys and is then interrupted."""
    attend = PackedBatch.attend

    def interrupt(batch: PackedBatch, layer: int, *args: Any, **options: Any) -> Any:
        if layer == 1:
            raise KeyboardInterrupt
        return attend(batch, layer, *args, **options)

    with patch.object(PackedBatch, "attend", interrupt):
        yield
