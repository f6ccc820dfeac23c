"""Folders that hold no model that can run are refused, with what to do about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from relquery.errors import ModelError
from relquery.model.networks.load import load
from relquery.model.networks.random import byte_tokenizer
from tests.serve.cases import cases

SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    tokenizer = byte_tokenizer()
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(good, tmp_path / "model"))


def test_a_whole_folder_loads(good: Path) -> None:
    assert load(str(good)).context == 64


def configured(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def weighted(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def without(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.unlink()


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda it: weighted(it, lambda w: [w.pop(n) for n in [*w] if "layers.1.mlp" in n]),
        r"lacks weights.*layers\.1\.mlp\.down_proj.*again",
    ),
    (
        lambda it: BertModel(BertConfig(vocab_size=300, **SIZES)).save_pretrained(it),
        r"lacks weights.*and \d more.*generates text",
    ),
    (cut_short, r"cannot be read.*download it again"),
    (lambda it: configured(it, vocab_size=300), r"do not have the sizes.*config\.json"),
    (
        lambda it: configured(it, num_hidden_layers=1),
        r"no place for, such as model\.layers\.1\.",
    ),
    (lambda it: without(it, "*token*"), r"has no tokenizer.*save_pretrained"),
    (lambda it: without(it, "*"), r"it has no config\.json"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_folder_without_a_whole_model_is_refused_with_what_to_do(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=message):
        load(str(folder))


@pytest.mark.parametrize("settings", cases(__file__, "settings"))
def test_a_configuration_that_no_network_can_have_is_told(
    folder: Path, settings: dict[str, Any]
) -> None:
    configured(folder, **settings)
    with pytest.raises(ModelError, match="model"):
        load(str(folder))


@pytest.mark.parametrize("content", ["[]", "{", "\xff"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_configuration_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content, encoding="latin-1")
    with pytest.raises(ModelError, match=name):
        load(str(folder))


@pytest.mark.parametrize("end", ["x", -1, ["x"], 1.5])
def test_end_tokens_must_be_token_ids(folder: Path, end: object) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    with pytest.raises(ModelError, match="eos_token_id"):
        load(str(folder))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["mlp.up_proj", "self_attn.q_proj"])
def test_weights_that_are_not_finite_are_told(folder: Path, name: str, value: float) -> None:
    weighted(folder, lambda weights: weights[f"model.layers.0.{name}.weight"].fill_(value))
    with pytest.raises(ModelError, match="computes no finite numbers"):
        load(str(folder))


def test_a_device_that_computes_nothing_is_refused(good: Path) -> None:
    with pytest.raises(ModelError, match="meta"):
        load(str(good), device="meta")
