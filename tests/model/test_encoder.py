"""An encoder's vectors are those of its states, pooled by hand, whatever stands beside a text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

from relquery.backends.embedding.local import LocalEmbedder
from relquery.errors import ConfigError, ModelError
from relquery.model.encoder import Encoder

WORDS = [
    "a",
    "tower",
    "stands",
    "by",
    "the",
    "river",
    "and",
    "old",
    "bridge",
    "over",
    "water",
    "under",
    "sky",
]
TEXTS = ["the tower", "a bridge over the river", "", "sky " * 60, "an unknown word"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights and a tokenizer of words."""
    path = tmp_path_factory.mktemp("encoder")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: at for at, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(path)  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40,
    )  # fmt: skip
    BertModel(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_pooled_states_of_the_stock_model(folder: Path, pooling: str) -> None:
    encoder = Encoder.load(str(folder), pooling)
    stock = AutoModel.from_pretrained(folder).eval()
    expected = []
    for text in TEXTS:
        ids = encoder.tokenizer(text, truncation=True, max_length=40, return_tensors="pt")
        with torch.inference_mode():
            states = stock(**ids).last_hidden_state[0]
        expected.append((states.mean(dim=0) if pooling == "mean" else states[0]).numpy())
    np.testing.assert_allclose(encoder.embed(TEXTS), np.stack(expected), atol=1e-5)


def test_a_text_has_its_vector_whatever_is_embedded_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.load(str(folder))
    together = encoder.embed(TEXTS)
    monkeypatch.setattr("relquery.model.encoder._TOKENS_AT_ONCE", 12)
    np.testing.assert_allclose(encoder.embed(TEXTS), together, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[:1]), together[:1], atol=1e-5)
    assert encoder.embed([]).size == 0


def test_pooling_is_what_the_folder_says(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    said = tmp_path / "1_Pooling" / "config.json"
    for mode in ("cls", "mean"):
        modes = {f"pooling_mode_{one}": False for one in ("max_tokens", "cls_token", "mean_tokens")}
        modes[f"pooling_mode_{mode}_token" + "s" * (mode == "mean")] = True
        said.write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
        assert Encoder.load(str(tmp_path)).pooling == mode
    said.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ModelError, match="asks for pooling_mode_max_tokens"):
        Encoder.load(str(tmp_path))
    assert Encoder.load(str(tmp_path), "mean").pooling == "mean"


def test_the_name_changes_with_pooling_and_weights(folder: Path, tmp_path: Path) -> None:
    names = {LocalEmbedder(str(folder), pooling).name for pooling in ("mean", "cls")}
    assert LocalEmbedder(str(folder)).name in names
    network = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        network.embeddings.word_embeddings.weight[5, 5] += 1e-3
    network.save_pretrained(tmp_path)
    for file in folder.glob("token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    names.add(LocalEmbedder(str(tmp_path)).name)
    assert len(names) == 3


def test_what_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config.json|is not a model folder"):
        Encoder.load(str(tmp_path))
    with pytest.raises(ConfigError, match="pooling"):
        Encoder.load(str(folder), "median")


@pytest.mark.parametrize("name", ["no such encoder", "empty"])
def test_a_wrong_name_tells_what_an_encoder_can_be(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    said = f"Encoder '{name}' is .* Give 'tfidf' for search by words, a folder .*'openai:NAME'"
    with pytest.raises(ModelError, match=said):
        Encoder.load(name)
    with pytest.raises(ModelError, match=r"The encoder folder \./nowhere does not exist"):
        Encoder.load("./nowhere")
