"""Weights that are rounded to 8 and 4 bits when a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3MoeForCausalLM

from relquery import native as native_target
from relquery.errors import ModelError
from relquery.model.load import load
from relquery.model.native_model import open_folder
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    NO_TOKENIZER,
    build,
    generated,
    larger,
    made,
    native,
    prompts_with_shared_prefixes,
)
from tests.model.test_generate import TOKENS
from tests.model.test_native import Case, answered

GROUP = 32
PROMPTS = prompts_with_shared_prefixes(12)


def rounded(weight: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Numbers as they are in so many bits: by the largest of 32, or from their least to their
    most."""
    groups = weight.reshape(-1, GROUP).astype(np.float32)
    low, high = groups.min(1, keepdims=True), groups.max(1, keepdims=True)
    begin = np.zeros_like(low) if bits == 8 else low
    most = np.maximum(high, -low) / np.float32(127)
    factor = most if bits == 8 else (high - low) / np.float32(15)
    inverse = np.divide(1, factor, out=np.zeros_like(factor), where=factor > 0)
    scaled = (groups - begin) * inverse
    codes = np.trunc(scaled + np.where(scaled < 0, np.float32(-0.5), np.float32(0.5)))
    return np.asarray((factor * codes + begin).reshape(weight.shape))


def round_weights(network: Any, bits: int) -> None:
    """What the runtime rounds, rounded: matrices of layers, and the head in 8 bits."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() > 1 and "embed" not in name and ".gate.weight" not in name:
                to = 8 if name == "lm_head.weight" else bits
                weight.copy_(torch.from_numpy(rounded(weight.numpy(), to)))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["llama", "qwen3_moe of whole panels"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_answers_are_those_of_rounded_weights(
    name: str, bits: int, dtype: str, tmp_path: Path
) -> None:
    network = build(name)
    network.save_pretrained(tmp_path)
    found = open_folder(tmp_path, "", dtype, NO_TOKENIZER, bits=bits)
    plain = native(network)
    round_weights(network, bits)
    expected = answered(Case(native(network, dtype=dtype), PROMPTS, []))
    assert answered(Case(found, PROMPTS, [])) == expected
    assert len({token for each in expected for token in each}) > 5
    assert found.version != plain.version
    assert found.fingerprint() != plain.fingerprint()


def round_rows(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a product reads, rounded to int8 by the largest of 32."""
    del module
    groups = given[0].unflatten(-1, (-1, GROUP))
    factor = groups.abs().amax(-1, keepdim=True) / 127
    return ((groups / factor.clamp_min(1e-30)).round().mul(factor).flatten(-2), *given[1:])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_products_in_int8_are_those_of_rounded_rows(
    name: str, bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_target, "has_pairs", lambda: False)  # float32 beside products
    network = build(name)
    network.save_pretrained(tmp_path)
    found = open_folder(tmp_path, "", "int8", NO_TOKENIZER, bits=bits)
    exact = open_folder(tmp_path, "", "float32", NO_TOKENIZER, bits=bits)
    round_weights(network, bits)
    for module in network.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(round_rows)
    assert answered(Case(found, PROMPTS, [])) == [
        generated(network, prompt, TOKENS) for prompt in PROMPTS
    ]
    assert found.version != exact.version
    assert found.fingerprint() != exact.fingerprint()


def test_a_tied_embedding_keeps_its_numbers_beside_a_rounded_head(tmp_path: Path) -> None:
    network = larger(made("Llama", LLAMA_LIKE, {"tie_word_embeddings": True}))
    network.save_pretrained(tmp_path)
    found = open_folder(tmp_path, "", "float32", NO_TOKENIZER, bits=8)
    untied = larger(made("Llama", LLAMA_LIKE))
    untied.load_state_dict(network.state_dict())
    round_weights(untied, 8)
    assert answered(Case(found, PROMPTS, [])) == answered(Case(native(untied), PROMPTS, []))


@pytest.mark.parametrize(("quantize", "share"), [("int8", 0.35), ("int4", 0.3)])
def test_weights_take_less_memory(quantize: str, share: float) -> None:
    whole, few = (
        load("random:layers=4,hidden=512", device="cpu", quantize=each) for each in (None, quantize)
    )
    embedding = whole.vocabulary * 512 * 4
    sizes = [each.footprint().weights for each in (few, whole)]
    assert sizes[0] - embedding < share * (sizes[1] - embedding)


def test_what_cannot_be_rounded_says_so(tmp_path: Path) -> None:
    network = made("Llama", LLAMA_LIKE, {"hidden_size": 48, "num_attention_heads": 6})()
    network.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="multiple of 32"):
        open_folder(tmp_path, "", "float32", NO_TOKENIZER, bits=4)
    config = build("qwen3_moe of whole panels").config
    config.moe_intermediate_size = 48
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(
        ModelError, match=r"down_proj has rows of 48 numbers.* of 32\. Leave quantize"
    ):
        open_folder(tmp_path, "", "float32", NO_TOKENIZER, bits=4)
    with pytest.raises(ModelError, match="quantize 'int3'"):
        load("random:layers=1,hidden=64", device="cpu", quantize="int3")
    with pytest.raises(ModelError, match="no weights in 4 or 8 bits"):
        load("random:layers=1,hidden=64", device="cpu", dtype="int8")
