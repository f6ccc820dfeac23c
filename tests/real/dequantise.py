"""A GGUF file as safetensors in float32: `python -m tests.real.dequantise FILE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


def dequantise(file: Path, folder: Path) -> None:
    """Write the network and the tokenizer of a file."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    given: Any = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    network: Any = AutoModelForCausalLM.from_pretrained(**given, dtype=torch.float32)
    # The library marks the network as quantised, and would not write it.
    network.hf_quantizer, network.is_quantized = None, False
    network.config.__dict__.pop("quantization_config", None)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**given).save_pretrained(folder)


if __name__ == "__main__":
    dequantise(Path(sys.argv[1]), Path(sys.argv[2]))
