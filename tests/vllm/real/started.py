"""vLLM in this process with the bundled model in float32, and the same model in transformers."""

from __future__ import annotations

import os
from typing import Any

from relquery.demo.files import model_path

SMALL: dict[str, Any] = {
    "dtype": "float32",
    "block_size": 32,
    "max_model_len": 1_024,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "enforce_eager": True,
}


def prepare() -> None:
    """Call it before vLLM is imported."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


def network() -> Any:
    """The model in transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        model_path(), dtype=torch.float32, attn_implementation="eager"
    )
