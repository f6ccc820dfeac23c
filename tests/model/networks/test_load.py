"""Folders that hold no model that can run are refused, with what to do about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from relquery.errors import ModelError
from relquery.model.networks.load import load
from relquery.model.networks.random import byte_tokenizer

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


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


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_missing_are_not_replaced_by_random_ones(folder: Path) -> None:
    file = folder / "model.safetensors"
    kept = {name: one for name, one in load_file(file).items() if "layers.1.mlp" not in name}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks weights.*layers\.1\.mlp\.down_proj.*again"):
        load(str(folder))


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_is_not_taken_for_a_model_that_generates_text(folder: Path) -> None:
    BertModel(BertConfig(vocab_size=300, **SIZES)).save_pretrained(folder)
    with pytest.raises(ModelError, match=r"lacks weights.*and \d more.*generates text"):
        load(str(folder))


def test_a_file_that_is_cut_short_is_told(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cannot be read.*download it again"):
        load(str(folder))


@pytest.mark.filterwarnings("ignore")
def test_weights_of_other_sizes_than_the_configuration_says_are_told(folder: Path) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + 8}))
    with pytest.raises(ModelError, match=r"do not have the sizes.*config\.json"):
        load(str(folder))


def test_a_folder_without_tokenizer_says_how_to_write_one(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer.*save_pretrained"):
        load(str(folder))


def test_an_empty_folder_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"it has no config\.json"):
        load(str(tmp_path))


def configured(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def test_weights_of_layers_that_the_configuration_does_not_have_are_told(folder: Path) -> None:
    configured(folder, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"no place for, such as model\.layers\.1\."):
        load(str(folder))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_attention_heads": 5},
        {"num_attention_heads": 0},
        {"max_position_embeddings": None},
        {"max_position_embeddings": "64"},
        {"max_position_embeddings": -1},
        {"hidden_act": "foo"},
        {"rope_parameters": {"rope_type": "foo", "rope_theta": 1e4}},
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}},
    ],
)
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
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights[f"model.layers.0.{name}.weight"].fill_(value)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="computes no finite numbers"):
        load(str(folder))


def test_a_device_that_computes_nothing_is_refused(good: Path) -> None:
    with pytest.raises(ModelError, match="meta"):
        load(str(good), device="meta")
