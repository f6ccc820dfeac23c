"""Folders that hold no model that can run are refused, with what to do about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
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
