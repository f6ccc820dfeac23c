"""Networks and tokenizers as `transformers` has them: what the engine is measured against; and what
benchmarks ask of a model of ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from relquery.config import EngineConfig
from relquery.model.native_model import NativeModel
from relquery.model.networks.random import RandomSpec, byte_tokenizer
from relquery.model.served import ServedExecutor, ServedModel
from relquery.model.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def set_threads(count: int) -> None:
    """Threads of an operation, of torch and of the native runtime."""
    import torch

    torch.set_num_threads(count)
    os.environ["OMP_NUM_THREADS"] = str(count)


def parameters(model: ServedModel) -> int:
    """Parameters of a network's products, without embeddings."""
    decoder = native(model).decoder
    attention = (2 * decoder.heads + 2 * decoder.kv_heads) * decoder.width * decoder.hidden
    return len(decoder.layers) * (attention + 3 * decoder.hidden * decoder.inner)


def native(model: ServedModel) -> NativeModel:
    """A model that the native runtime computes."""
    assert isinstance(model, NativeModel), "benchmarks are of the native runtime"
    return model


def executor_of(
    model: ServedModel, slots: int, slice_tokens: int = EngineConfig().slice_tokens
) -> ServedExecutor:
    """An executor with a cache of so many slots."""
    config = EngineConfig(slice_tokens=slice_tokens)
    return model.executor(config, slots, lambda: 0.0)


def stock_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    """A tokenizer of ours as one of transformers, which a folder can hold."""
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast
    made = wrap(tokenizer_object=tokenizer.backend, **tokenizer.special)
    made.chat_template = tokenizer.chat_template or None
    return cast("PreTrainedTokenizerBase", made)


def stock_network(spec: str) -> PreTrainedModel:
    """The network of a specification "random:...", without our attention."""
    import torch

    from relquery.model.torch_runtime.load import random_network

    network = random_network(RandomSpec.parse(spec), byte_tokenizer(), torch.float32)
    network.set_attn_implementation("sdpa")
    return network


def prefill(network: PreTrainedModel, tokens: npt.NDArray[np.int64]) -> None:
    """One forward pass over (requests, tokens), last logits only."""
    import torch

    with torch.inference_mode():
        ids = torch.from_numpy(tokens).to(network.device)
        network(input_ids=ids, use_cache=False, logits_to_keep=1)
