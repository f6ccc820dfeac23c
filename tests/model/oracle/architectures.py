"""Tiny networks of the architectures that must work, and engines on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
import transformers as tf

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.clock import RealClock
from relquery.engine.loop import Loop
from relquery.engine.request.pieces import Placing
from relquery.engine.request.request import Request
from relquery.model.attention.batch import PackedBatch
from relquery.model.networks.load import LoadedModel, prepare
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

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BLOOM: dict[str, Any] = {"n_layer": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
WIDE = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}


def made(kind: str, *settings: dict[str, Any], **more: Any) -> Callable[[], Any]:
    """Builds a network of transformers. kind: its class is `{kind}ForCausalLM`."""
    given: dict[str, Any] = {}
    for each in (*settings, more):
        given |= each
    of = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    config = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    return lambda: getattr(tf, of)(getattr(tf, config)(**given))


def llama_with_rope(rope_type: str, **parameters: Any) -> Callable[[], Any]:
    """A Llama whose frequencies are scaled; parameters: of its `rope_type`."""
    rope = {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0} | parameters
    return made("Llama", LLAMA_LIKE, rope_parameters=rope)


def partial(factor: float) -> dict[str, Any]:
    """Settings of a network of which a part of each head is rotated."""
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": factor}
    return {"hidden_size": 64, "rope_parameters": rope}


NETWORKS: dict[str, Callable[[], Any]] = {
    "llama": made("Llama", LLAMA_LIKE),
    "qwen3": made("Qwen3", LLAMA_LIKE, head_dim=8),
    "gpt2": made("GPT2", COMMON, n_embd=32, n_layer=2, n_head=4),
    "opt": made("OPT", COMMON, SMALL, word_embed_proj_dim=32, ffn_dim=64),
    "gemma3": made("Gemma3", GEMMA, layer_types=ONE_OF_EACH),
    "gemma2": made("Gemma2", GEMMA, layer_types=ONE_OF_EACH),
    "mistral": made("Mistral", SLIDING),
    "phi3": made("Phi3", LLAMA_LIKE),
    "gpt_neox": made("GPTNeoX", COMMON, SMALL, intermediate_size=64),
}
ALIBI: dict[str, Callable[[], Any]] = {
    # Slopes of a count of heads that is no power of two are another formula.
    "bloom": made("Bloom", BLOOM, vocab_size=VOCABULARY, hidden_size=48, n_head=6),
    "mpt": made(
        "Mpt", vocab_size=VOCABULARY, d_model=48, n_layers=2, n_heads=6, max_seq_len=CONTEXT
    ),
}
"""Networks with adapters, whose positions are biases."""
SHAPES: dict[str, dict[str, Any]] = {
    "falcon": {"multi_query": True},
    "falcon_grouped": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_many": {"multi_query": False, "parallel_attn": False, "bias": True},
}
FALCON: dict[str, Callable[[], Any]] = {
    name: made("Falcon", COMMON, WIDE, shape, ffn_hidden_size=64, alibi=False)
    for name, shape in SHAPES.items()
}
"""With rotary positions: as Falcon 7B, as Falcon 40B, and with keys of its own for each head."""
HALF_FAR = {"original_max_position_embeddings": 64}
SCALED_ROPE: dict[str, Callable[[], Any]] = {
    "linear": llama_with_rope("linear"),
    "yarn": llama_with_rope("yarn", **HALF_FAR),
    "llama3": llama_with_rope("llama3", **HALF_FAR, low_freq_factor=1.0, high_freq_factor=4.0),
    "dynamic": llama_with_rope("dynamic"),
    "longrope": llama_with_rope(
        "longrope",
        **HALF_FAR,
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[1.5, 2.0, 3.0, 4.0],
    ),
}
OTHER_ROTARY: dict[str, Callable[[], Any]] = {
    "phi3_partial": made("Phi3", LLAMA_LIKE, partial(0.75)),
    "gpt_neox_partial": made("GPTNeoX", COMMON, SMALL, partial(0.25), intermediate_size=64),
    "cohere": made("Cohere", LLAMA_LIKE),
    "smollm3": made("SmolLM3", LLAMA_LIKE, num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0]),
}
ALL = NETWORKS | ALIBI | FALCON | SCALED_ROPE | OTHER_ROTARY


class NoTokenizer:
    """What `prepare` asks of a tokenizer, where prompts are token ids already."""

    eos_token_id = None


def prepared(network: Any, name: str = "tiny") -> LoadedModel:
    """A network on our attention."""
    return prepare(network, cast(Any, NoTokenizer()), name)


@cache
def model_of(name: str) -> tuple[LoadedModel, Any]:
    """A network on our attention, and the stock one; those of one name are the same."""
    return prepared(build(name), name), build(name)


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


def engine_of(model: LoadedModel, kind: Any = TorchExecutor, **limits: Any) -> Loop:
    """An engine on a prepared network. kind: of its executor. limits: see EngineConfig."""
    config = EngineConfig(**({"cache_tokens": 4096} | limits))
    executor = kind(
        model.forward,
        config.cache_tokens // config.block_size * config.block_size,
        config.segment_sharing,
        model.positions,
        config.relocation,
        config.slice_tokens,
        model.release,
        config.host_tokens,
    )
    return Loop(executor, config, RealClock())


def placing_of(model: LoadedModel, relocation: str = "queries") -> Placing:
    """How the requests of an engine on this network stand at their positions."""
    if not model.positions.relocatable:
        return "bound"
    return "request" if relocation == "cidra" else "chain"


def finished(engine: Loop, requests: Iterable[Request]) -> Iterator[Request]:
    """Submit and run; the pools must be in order after every step."""
    for request in requests:
        engine.submit(request)
    while engine.waiting or engine.running:
        yield from engine.step()
        engine.pool.check()
        engine.host.check()


def answers(
    model: LoadedModel,
    prompts: Sequence[TokenIds],
    tokens: int,
    order: Sequence[int] | None = None,
    **limits: Any,
) -> list[list[int]]:
    """Greedy outputs by prompt, submitted in `order`."""
    requests = [Request(i, prompts[i], tokens) for i in order or range(len(prompts))]
    outputs = {
        request.id: request.output for request in finished(engine_of(model, **limits), requests)
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
