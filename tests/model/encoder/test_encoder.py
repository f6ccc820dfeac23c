"""An encoder's vectors are those of its states, pooled by hand, whatever stands beside a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    MPNetConfig,
    MPNetModel,
    Qwen2Config,
    Qwen2Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    T5Model,
)

from relquery.backends.embedding.local import LocalEmbedder
from relquery.errors import ConfigError, ModelError
from relquery.model.encoder.encoder import Encoder

TEXTS = ["the tower", "a bridge over the river", "", "sky " * 60, "an unknown word"]


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
    monkeypatch.setattr("relquery.model.encoder.encoder._TOKENS_AT_ONCE", 12)
    np.testing.assert_allclose(encoder.embed(TEXTS), together, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[:1]), together[:1], atol=1e-5)
    assert encoder.embed([]).shape == (0, 32)


def test_networks_of_many_kinds_give_the_pooled_states_of_the_stock_one(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    size: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    size["intermediate_size"] = 64
    some: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": 0}
    t5 = T5Config(**some, d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=1)
    networks: dict[str, Any] = {
        "roberta": RobertaModel(RobertaConfig(**some, **size, max_position_embeddings=20)),
        "mpnet": MPNetModel(MPNetConfig(**some, **size, max_position_embeddings=20)),
        "qwen2": Qwen2Model(Qwen2Config(**some, **size, num_key_value_heads=2)),
        "t5": T5EncoderModel(t5),
        "whole t5": T5Model(t5),
    }
    for name, network in networks.items():
        network.eval().save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        encoder = Encoder.load(str(tmp_path / name))
        stock = network.encoder if name == "whole t5" else network
        expected = []
        for text in TEXTS:
            cut = {"truncation": True, "max_length": encoder.context}
            ids = encoder.tokenizer(text, return_tensors="pt", **cut)
            given = {one: ids[one] for one in ("input_ids", "attention_mask")}
            with torch.inference_mode():
                expected.append(stock(**given).last_hidden_state[0].mean(dim=0).numpy())
        vectors = encoder.embed(TEXTS)
        np.testing.assert_allclose(vectors, np.stack(expected), atol=1e-5, err_msg=name)


def test_a_text_without_a_token_has_no_vector(folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer.save_pretrained(tmp_path)
    for pooling in ("mean", "cls", "last"):
        encoder = Encoder.load(str(tmp_path), pooling)
        vectors = encoder.embed(["", "the tower", ""])
        assert not vectors[[0, 2]].any()
        np.testing.assert_allclose(vectors[1:2], encoder.embed(["the tower"]), atol=1e-6)
        assert encoder.embed([""]).tolist() == [[0.0] * 32]


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
    with pytest.raises(ConfigError, match="pooling"):
        Encoder.load(str(folder), "median")
    config = BartConfig(vocab_size=20, d_model=16, encoder_layers=1, decoder_layers=1)
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has a decoder behind it"):
        Encoder.load(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelError, match="has no tokenizer that can be read"):
        Encoder.load(str(tmp_path))


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
