"""Networks with random weights, made on the device: ours, and the same as transformers has it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from relquery.model.networks.random import RandomSpec, byte_tokenizer
from relquery.model.torch_runtime import attention
from relquery.model.torch_runtime.graphs import GraphedSteps
from relquery.model.torch_runtime.load import TorchModel, prepare
from relquery.model.torch_runtime.on_gpu import GpuAttention


def make_networks(
    spec: str, vocabulary: int, dtype: torch.dtype, device: str, seed: int
) -> tuple[TorchModel, Any]:
    """A model of ours, and a network of transformers with the same weights in the same memory."""
    given: Any = {**RandomSpec.parse(spec).config(vocabulary)}
    del given["model_type"]
    config: Any = LlamaConfig(**given, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            made: Any = [LlamaForCausalLM(deepcopy(config)) for _ in range(2)]
    finally:
        torch.set_default_dtype(before)
    network, stock = made
    stock.load_state_dict(network.state_dict(), assign=True)
    stock.tie_weights()
    stock.set_attn_implementation("sdpa")
    stock.train(False)
    return prepare(network, byte_tokenizer(), spec), stock


def interpret(model: TorchModel) -> None:
    """Let a model on a CPU attend and decode as on a GPU: in Triton's interpreter, which the
    environment must have turned on; what would be a graph runs again instead."""
    attention.kernels_of = lambda device: GpuAttention
    model.forward._graphs = GraphedSteps(model.network, lambda compute: compute)
