"""An encoder's vectors are those of its states, pooled by hand, whatever stands beside a text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, BartConfig, BertConfig, BertModel

from relquery.backends.embedders import LocalEmbedder
from relquery.errors import ConfigError, ModelError, RequestError
from relquery.model.encoder import Encoder
from relquery.model.formats.config import ConfigReader
from relquery.model.native_encoder import NativeEncoder
from relquery.model.networks.encoder import _ENCODERS, read_encoder
from tests.model.oracle.architectures import varied

TEXTS = ["the tower", "a bridge over the river", "", "sky " * 60, "an unknown word"]


@torch.inference_mode()
def states(network: Any, folder: Path, text: str, longest: int = 40) -> torch.Tensor:
    """(tokens, dimensions) of the stock network. folder: of the tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
    given = {one: ids[one] for one in ("input_ids", "attention_mask")}
    found: torch.Tensor = network(**given).last_hidden_state[0]
    return found


def assert_vectors(encoder: Encoder, texts: list[str], expected: list[torch.Tensor]) -> None:
    np.testing.assert_allclose(encoder.embed(texts), torch.stack(expected).numpy(), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_pooled_states_of_the_stock_model(folder: Path, pooling: str) -> None:
    stock = AutoModel.from_pretrained(folder).eval()
    found = [states(stock, folder, text) for text in TEXTS]
    pooled = [each.mean(dim=0) if pooling == "mean" else each[0] for each in found]
    assert_vectors(Encoder.load(str(folder), pooling), TEXTS, pooled)


def test_a_text_has_its_vector_whatever_is_embedded_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.load(str(folder))
    together = encoder.embed(TEXTS)
    monkeypatch.setattr(type(encoder.network), "tokens_at_once", 12)
    np.testing.assert_allclose(encoder.embed(TEXTS), together, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[:1]), together[:1], atol=1e-5)
    assert encoder.embed([]).shape == (0, 32)


SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
ROBERTA = SIZES | {"intermediate_size": 64, "max_position_embeddings": 20}
T5: dict[str, Any] = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "num_layers": 1}
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("RobertaModel", "RobertaConfig", ROBERTA),
    ("MPNetModel", "MPNetConfig", ROBERTA),
    ("Qwen2Model", "Qwen2Config", SIZES | {"intermediate_size": 64, "num_key_value_heads": 2}),
    ("T5EncoderModel", "T5Config", T5),
    ("T5Model", "T5Config", T5),  # whose encoder is taken
]


@pytest.mark.parametrize(("kind", "config", "settings"), KINDS)
def test_networks_of_many_kinds_give_the_pooled_states_of_the_stock_one(
    folder: Path, tmp_path: Path, kind: str, config: str, settings: dict[str, Any]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    made = getattr(tf, config)(vocab_size=len(tokenizer), pad_token_id=0, **settings)
    network = getattr(tf, kind)(made).eval()
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder, stock = Encoder.load(str(tmp_path)), network.encoder if kind == "T5Model" else network
    cut = encoder.context or 10**6
    assert_vectors(
        encoder, TEXTS, [states(stock, tmp_path, text, cut).mean(dim=0) for text in TEXTS]
    )


SMALL = SIZES | {"vocab_size": 50, "num_hidden_layers": 3, "intermediate_size": 48}
ODD = {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50}
NATIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {}),
    "bert of odd sizes": ("BertModel", ODD | {"hidden_act": "gelu_pytorch_tanh"}),
    "modernbert": ("ModernBertModel", {"num_hidden_layers": 4, "local_attention": 20}),
    "modernbert with biases and a head": (
        "ModernBertForMaskedLM",
        ODD
        | {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "local_attention": 130}
        | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "modernbert of whole panels, with other positions": (
        "ModernBertModel",
        {
            "intermediate_size": 64,
            "local_attention": 7,
            "hidden_activation": "silu",
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 9e4, "factor": 3.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            },
        },
    ),
    "bert with a head": ("BertForMaskedLM", {"type_vocab_size": 1, "layer_norm_eps": 1e-3}),
    "bert with a head on its pooler": ("BertForSequenceClassification", {"num_labels": 3}),
    "bert with the heads of its training": ("BertForPreTraining", {}),
}


@pytest.mark.parametrize("name", NATIVE)
def test_states_of_the_native_runtime_are_those_of_transformers(
    folder: Path, tmp_path: Path, name: str
) -> None:
    kind, settings = NATIVE[name]
    given = SMALL | {"max_position_embeddings": 200} | settings
    made = getattr(tf, kind)
    network = varied(lambda: made(made.config_class(pad_token_id=0, **given)))
    network.save_pretrained(tmp_path)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 50, length) for length in (1, 2, 17, 64, 65, 200, 3)]
    found = NativeEncoder(tmp_path, name).states([each.tolist() for each in texts])
    for text, states in zip(texts, found, strict=True):
        with torch.inference_mode():
            expected = network.base_model(torch.from_numpy(text)[None]).last_hidden_state[0]
        np.testing.assert_allclose(states, expected.numpy(), rtol=0, atol=1e-5)


# As the first ModernBERT was published.
FORMER: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 4, "classifier_activation": "gelu", "classifier_bias": False,
    "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 4,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0,
    "eos_token_id": 5, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 32,
    "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 48,
    "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0,
    "max_position_embeddings": 200, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 4,
    "num_hidden_layers": 4, "pad_token_id": 0, "position_embedding_type": "absolute",
    "sep_token_id": 5, "tie_word_embeddings": True, "torch_dtype": "float32",
    "transformers_version": "4.47.0", "vocab_size": 50,
}  # fmt: skip


def test_former_configurations_of_modernbert_are_understood() -> None:
    config: Any = tf.ModernBertConfig
    written = json.loads(config(**FORMER).to_json_string())
    assert "rope_parameters" in written
    assert "local_rope_theta" not in written
    assert read_encoder(ConfigReader("", FORMER)) == read_encoder(ConfigReader("", written))


def test_every_family_has_a_network_here() -> None:
    kinds = {getattr(tf, kind).config_class.model_type for kind, _ in NATIVE.values()}
    assert kinds == {*_ENCODERS}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ({"is_decoder": True}, "is_decoder is True"),
    ({"hidden_act": "relu"}, "its activation is 'relu'"),
    ({"novelty": 1}, "a key that is not known: novelty"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_is_computed_otherwise_is_refused_where_torch_is_not_installed(
    written: Write, settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written({})
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | settings))
    monkeypatch.setattr("relquery.model.encoder.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=message):
        Encoder.load(str(folder), device="cpu")


DAMAGES: list[tuple[Callable[[dict[str, torch.Tensor]], object], str]] = [
    (lambda it: it.pop("encoder.layer.1.output.dense.weight"), r"lacks encoder\.layer\.1\.output"),
    (lambda it: it.update(other=torch.ones(2)), "no place for, such as other"),
    (
        lambda it: it.update({"embeddings.LayerNorm.weight": torch.ones(31)}),
        "do not have the sizes",
    ),
]


def test_weights_that_are_not_finite_are_told(written: Write) -> None:
    file = written({}) / "model.safetensors"
    weights = load_file(file)
    next(weight for name, weight in weights.items() if "query.weight" in name).fill_(torch.nan)
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ModelError, match="computes no finite numbers"):
        Encoder.load(str(file.parent), device="cpu")


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_weights_that_do_not_belong_to_the_configuration_are_told(
    written: Write, damage: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    file = written({}) / "model.safetensors"
    weights = load_file(file)
    damage(weights)
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ModelError, match=message):
        Encoder.load(str(file.parent), device="cpu")


def test_older_names_of_norms_and_numbered_positions_are_read(written: Write, folder: Path) -> None:
    file = written({}) / "model.safetensors"
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = {"embeddings.position_ids": torch.arange(40)[None]}
    for name, weight in load_file(file).items():
        end = next((each for each in older if name.endswith(each)), "")
        weights[name.removesuffix(end) + older.get(end, "")] = weight
    save_file(weights, file, {"format": "pt"})
    found, expected = (Encoder.load(str(each), device="cpu") for each in (file.parent, folder))
    np.testing.assert_array_equal(found.embed(LINES), expected.embed(LINES))


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


def test_a_word_that_was_added_to_the_tokenizer_alone_is_refused(folder: Path) -> None:
    encoder = Encoder.load(str(folder))
    encoder.network.tokenizer.backend.add_tokens(["zorgle"])
    with pytest.raises(RequestError, match=r"The text has the token \d+ \('zorgle'\)"):
        encoder.embed(["a zorgle", "b"])


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
            said = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(said)
        return tmp_path

    return write


def modules(*kinds: str, network: str = "", pooling: str = "1_Pooling") -> list[dict[str, str]]:
    """The content of a modules.json."""
    places = {"Transformer": network, "Pooling": pooling}
    prefix = "sentence_transformers.models."
    return [{"type": prefix + kind, "path": places.get(kind, f"2_{kind}")} for kind in kinds]


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


def test_the_last_token_can_be_the_vector(written: Write, folder: Path) -> None:
    stock = AutoModel.from_pretrained(folder).eval()
    said = written({"1_Pooling/config.json": {"pooling_mode_lasttoken": True}})
    assert_vectors(
        Encoder.load(str(said)), LINES, [states(stock, folder, text)[-1] for text in LINES]
    )


def test_an_unsupported_pooling_names_a_remedy_that_works(written: Write) -> None:
    for said in ({"pooling_mode": "max"}, {"pooling_mode": ["mean", "cls"]}, {"include_prompt": 1}):
        folder = written({"1_Pooling/config.json": said})
        with pytest.raises(ModelError, match=r"asks for the pooling .*pooling='mean'"):
            Encoder.load(str(folder))
        assert Encoder.load(str(folder), "mean").layout.pooling == "mean"


PROMPTS = {"prompts": {"query": "under ", "document": "over "}, "default_prompt_name": "query"}
LEFT_OUT = {"pooling_mode_mean_tokens": True, "include_prompt": False}
UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"modules.json": modules("Transformer", "Pooling", "Dense")}, "of the kind Dense, which is"),
    ({"modules.json": {"not": "a list of modules"}}, "does not list modules"),
    ({"modules.json": "[{"}, r"modules\.json cannot be read"),
    (
        {"config_sentence_transformers.json": PROMPTS, "1_Pooling/config.json": LEFT_OUT},
        "leaves it out when it pools",
    ),
]


@pytest.mark.parametrize(("files", "message"), UNSUPPORTED)
def test_what_is_not_supported_or_cannot_be_read_is_refused(
    written: Write, files: dict[str, Any], message: str
) -> None:
    folder = str(written(files))
    for pooling in (None, "mean") if "Dense" in message else (None,):
        with pytest.raises(ModelError, match=message):
            Encoder.load(folder, pooling)


def test_a_network_in_a_folder_of_its_own_is_found(written: Write, folder: Path) -> None:
    listed = modules("Transformer", "Pooling", network="0_Transformer")
    pooling = {"pooling_mode_mean_tokens": True}
    nested = written(
        {"modules.json": listed, "1_Pooling/config.json": pooling}, network="0_Transformer"
    )
    found, expected = (Encoder.load(str(one)) for one in (nested, folder))
    np.testing.assert_array_equal(found.embed(LINES), expected.embed(LINES))
    assert found.fingerprint() == expected.fingerprint()


def test_length_case_and_prompt_are_those_of_the_files(written: Write, folder: Path) -> None:
    short = {"max_seq_length": 6, "do_lower_case": True}
    said = written(
        {"sentence_bert_config.json": short, "config_sentence_transformers.json": PROMPTS}
    )
    stock = AutoModel.from_pretrained(folder).eval()
    expected = [states(stock, folder, f"under {text}".lower(), 6).mean(dim=0) for text in LINES]
    encoder = Encoder.load(str(said))
    assert_vectors(encoder, LINES, expected)
    first = encoder.fingerprint()
    told = json.loads((said / "tokenizer_config.json").read_text())
    written({"tokenizer_config.json": told | {"truncation_side": "left"}})
    end = states(stock, folder, "bridge over the river").mean(dim=0)
    assert_vectors(Encoder.load(str(said)), LINES[1:2], [end])
    without = written({"config_sentence_transformers.json": {"prompts": {"query": "under "}}})
    assert Encoder.load(str(without)).layout.prompt == ""
    assert Encoder.load(str(without)).fingerprint() != first


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
    wrapped: Any = tf.PreTrainedTokenizerFast
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
