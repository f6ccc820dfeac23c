"""An encoder's vectors are those of its states, pooled by hand, whatever stands beside a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    BertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
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


# ---- what the files of an encoder say

LINES = ["the tower", "a bridge over the river", "Old WATER under the sky"]
Write = Callable[..., Path]


@pytest.fixture
def written(folder: Path, tmp_path: Path) -> Write:
    """Writes the files of an encoder, and more JSON files beside them."""

    def write(files: dict[str, Any], network: str = "") -> Path:
        (tmp_path / network).mkdir(exist_ok=True)
        for file in folder.iterdir():
            (tmp_path / network / file.name).write_bytes(file.read_bytes())
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return write


def modules(*kinds: str, network: str = "", pooling: str = "1_Pooling") -> list[dict[str, str]]:
    """The content of a modules.json."""
    places = {"Transformer": network, "Pooling": pooling}
    prefix = "sentence_transformers.models."
    return [{"type": prefix + kind, "path": places.get(kind, f"2_{kind}")} for kind in kinds]


def states(folder: Path, text: str, longest: int = 40) -> np.ndarray[Any, Any]:
    """(tokens, dimensions), by the stock network."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
    with torch.inference_mode():
        found = AutoModel.from_pretrained(folder).eval()(**ids).last_hidden_state[0]
        return cast("np.ndarray[Any, Any]", found.numpy())


def test_pooling_is_what_the_folder_says(written: Write) -> None:
    for place, said in (
        ("1_Pooling", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
        ("1_Pooling", {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}),
        ("pooled", {"pooling_mode": ["cls"]}),
    ):
        listed = modules("Transformer", "Pooling", "Normalize", pooling=place)
        folder = written({"modules.json": listed, f"{place}/config.json": said})
        assert Encoder.load(str(folder)).layout.pooling == "cls"
        assert Encoder.load(str(folder), "mean").layout.pooling == "mean"


def test_the_last_token_can_be_the_vector(written: Write) -> None:
    folder = written({"1_Pooling/config.json": {"pooling_mode_lasttoken": True}})
    expected = np.stack([states(folder, text)[-1] for text in LINES])
    np.testing.assert_allclose(Encoder.load(str(folder)).embed(LINES), expected, atol=1e-5)


def test_an_unsupported_pooling_names_a_remedy_that_works(written: Write) -> None:
    for said in ({"pooling_mode": "max"}, {"pooling_mode": ["mean", "cls"]}, {"include_prompt": 1}):
        folder = written({"1_Pooling/config.json": said})
        with pytest.raises(ModelError, match=r"asks for the pooling .*pooling='mean'"):
            Encoder.load(str(folder))
        assert Encoder.load(str(folder), "mean").layout.pooling == "mean"


def test_a_layer_behind_the_pooling_is_refused(written: Write) -> None:
    folder = written({"modules.json": modules("Transformer", "Pooling", "Dense")})
    with pytest.raises(ModelError, match="a module of the kind Dense, which is not supported"):
        Encoder.load(str(folder), "mean")


def test_a_network_in_a_folder_of_its_own_is_found(written: Write, folder: Path) -> None:
    listed = modules("Transformer", "Pooling", network="0_Transformer")
    pooling = {"pooling_mode_mean_tokens": True}
    nested = written(
        {"modules.json": listed, "1_Pooling/config.json": pooling}, network="0_Transformer"
    )
    found, expected = (Encoder.load(str(one)) for one in (nested, folder))
    np.testing.assert_array_equal(found.embed(LINES), expected.embed(LINES))
    assert found.fingerprint() == expected.fingerprint()


def test_length_case_and_prompt_are_those_of_the_files(written: Write) -> None:
    folder = written(
        {
            "sentence_bert_config.json": {"max_seq_length": 6, "do_lower_case": True},
            "config_sentence_transformers.json": {
                "prompts": {"query": "under ", "document": "over "},
                "default_prompt_name": "query",
            },
        }
    )
    encoder = Encoder.load(str(folder))
    expected = [states(folder, f"under {text}".lower(), 6).mean(axis=0) for text in LINES]
    np.testing.assert_allclose(encoder.embed(LINES), np.stack(expected), atol=1e-5)
    without = written({"config_sentence_transformers.json": {"prompts": {"query": "under "}}})
    assert Encoder.load(str(without)).layout.prompt == ""
    assert Encoder.load(str(without)).fingerprint() != encoder.fingerprint()


def test_a_prompt_that_is_left_out_of_the_pooling_is_refused(written: Write) -> None:
    prompts = {"prompts": {"query": "under "}, "default_prompt_name": "query"}
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    folder = written(
        {"config_sentence_transformers.json": prompts, "1_Pooling/config.json": pooling}
    )
    with pytest.raises(ModelError, match="leaves it out when it pools"):
        Encoder.load(str(folder))


def test_a_file_that_cannot_be_read_is_told(written: Write) -> None:
    folder = written({"modules.json": {"not": "a list of modules"}})
    with pytest.raises(ModelError, match="does not list modules"):
        Encoder.load(str(folder))
    (folder / "modules.json").write_text("[{")
    with pytest.raises(ModelError, match=r"modules\.json cannot be read"):
        Encoder.load(str(folder))


WORDS = [
    *("a", "tower", "stands", "by", "the", "river", "and"),
    *("old", "bridge", "over", "water", "under", "sky"),
]


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
    wrapped: Any = PreTrainedTokenizerFast
    wrapped(
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
