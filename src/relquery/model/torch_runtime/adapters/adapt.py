"""Which networks have an adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import BloomForCausalLM, FalconForCausalLM, MptForCausalLM, PreTrainedModel

from relquery.model.torch_runtime.adapters.bloom import adapt_bloom
from relquery.model.torch_runtime.adapters.falcon import adapt_falcon
from relquery.model.torch_runtime.adapters.mpt import adapt_mpt

ADAPTERS: dict[type[PreTrainedModel], Callable[[Any], None]] = {
    BloomForCausalLM: adapt_bloom,
    FalconForCausalLM: adapt_falcon,
    MptForCausalLM: adapt_mpt,
}


def adapt(network: PreTrainedModel) -> bool:
    """Make a network call our attention function, if there is an adapter for it.

    Changes the network permanently. Returns False if there is none; then use
    `set_attn_implementation`.
    """
    for kind, adapter in ADAPTERS.items():
        if isinstance(network, kind):
            adapter(network)
            return True
    return False
