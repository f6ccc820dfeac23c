"""Folders that hold no model that can run are refused, with what to do about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from benchmarks.stock import native, stock_network, stock_tokenizer
from relquery.errors import ModelError
from relquery.model.load import load
from relquery.model.native_model import open_folder
from relquery.model.networks.random import (
    END,
    RandomSpec,
    RandomWeights,
    byte_tokenizer,
    train_tokenizer,
)
from relquery.model.text.tokenizer import Tokenizer
from tests.cases import cases
from tests.model.oracle.architectures import answers, generated, prompts_with_shared_prefixes
from tests.model.test_native import Case, answered

SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    tokenizer = byte_tokenizer()
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)
    stock_tokenizer(tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(good, tmp_path / "model"))


def configured(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def weighted(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def without_prefix(weights: dict[str, torch.Tensor]) -> None:
    for name in list(weights):
        weights[name.removeprefix("model.")] = weights.pop(name)


def without(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.unlink()


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def written(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of the weights, and leave the weights as they are."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    changed = change(header)
    text = json.dumps(header if changed is None else changed).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])


def moved(header: dict[str, Any]) -> None:
    """Let a weight begin where another does."""
    first, second = sorted(name for name in header if "q_proj" in name)
    header[second]["data_offsets"] = header[first]["data_offsets"]


def shaped(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"] = [1.5]


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda it: weighted(it, lambda w: [w.pop(n) for n in [*w] if "layers.1.mlp" in n]),
        r"lacks model\.layers\.1\.mlp\.gate_proj\.weight.*again",
    ),
    (
        lambda it: BertModel(BertConfig(vocab_size=300, **SIZES)).save_pretrained(it),
        r"lacks weights.*and \d more.*generates text",
    ),
    (cut_short, r"cannot be read.*download it again"),
    (lambda it: written(it, moved), r"do not follow one another"),
    (lambda it: written(it, shaped), r"cannot be read"),
    (lambda it: written(it, lambda header: []), r"cannot be read"),
    (
        lambda it: written(it, lambda header: header["lm_head.weight"].update(dtype="F64")),
        r"kind 'F64', which are not computed\. Save them as one of F32",
    ),
    (lambda it: configured(it, vocab_size=300), r"do not have the sizes.*config\.json"),
    (
        lambda it: configured(it, num_hidden_layers=1),
        r"no place for, such as model\.layers\.1\.",
    ),
    (
        lambda it: configured(it, tie_word_embeddings=True),
        r"lm_head\.weight is not the embedding",
    ),
    (lambda it: weighted(it, without_prefix), r"lacks model\.embed_tokens.* It has embed_tokens\."),
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


def halved(weights: dict[str, torch.Tensor]) -> None:
    for name in [each for each in weights if "q_proj" in each]:
        weights[name] = weights[name].bfloat16()


def rounded(weights: dict[str, torch.Tensor]) -> None:
    halved(weights)
    weights.update({name: each.float() for name, each in weights.items()})


def test_matrices_of_two_kinds_are_joined(folder: Path) -> None:
    found = []
    for change in (rounded, halved):
        weighted(folder, change)
        model = open_folder(folder, "", "float32", BYTES)
        found.append(answered(Case(model, prompts_with_shared_prefixes(5), [])))
    assert found[0] == found[1]


def test_one_file_of_weights_goes_before_an_index_as_in_transformers(folder: Path) -> None:
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps({"weight_map": {"lm_head.weight": "older.safetensors"}}))
    load(str(folder)).close()
    without(folder, "model.safetensors")
    with pytest.raises(ModelError, match=r"older\.safetensors"):
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
    with pytest.raises(
        ModelError, match=r"computes no finite numbers.* float32\. Download it again"
    ):
        load(str(folder))


def test_one_logit_that_is_not_finite_is_told(folder: Path) -> None:
    weighted(folder, lambda weights: weights["lm_head.weight"][7].fill_(torch.nan))
    for dtype, remedy in (("float32", "Download it again"), ("bfloat16", "Try dtype='float32'")):
        with pytest.raises(ModelError, match=f"computes no finite numbers.*{remedy}"):
            load(str(folder), device="cpu", dtype=dtype)


def test_what_neither_runtime_computes_is_told_with_both_reasons(folder: Path) -> None:
    configured(folder, quantization_config={"quant_method": "fp8"})
    weighted(folder, lambda weights: weights.pop("model.norm.weight"))
    with pytest.raises(ModelError, match=r"quantized by 'fp8'.*Nor in torch's: .*lacks weights"):
        load(str(folder), device="cpu")


def test_a_device_that_computes_nothing_is_refused(good: Path) -> None:
    with pytest.raises(ModelError, match="meta"):
        load(str(good), device="meta")


# ---- networks with random weights

BYTES = byte_tokenizer()
END_ID = BYTES.id_of("eos_token")
SMALL = RandomSpec(layers=1, hidden=32, heads=4, kv_heads=2, ffn=48, context=128)


def test_a_spec_is_read_with_defaults_for_what_it_leaves_out_or_its_fault_is_named() -> None:
    assert RandomSpec.parse("random:") == RandomSpec()
    some = RandomSpec(layers=2, hidden=64, kv_heads=1)
    assert RandomSpec.parse("random:layers=2,hidden=64,kv_heads=1") == some
    for text in ("layers=x", "layers=-1", "layers", "layers=", "layers=1.5"):
        with pytest.raises(ModelError, match=f"'{text}' in 'random:hidden=64,{text}'"):
            RandomSpec.parse(f"random:hidden=64,{text}")
    with pytest.raises(ModelError, match=r"Settings: layers, .* Did you mean 'hidden'\?"):
        RandomSpec.parse("random:hiden=64")


def test_a_shape_that_no_network_can_have_is_refused() -> None:
    for spec in (
        RandomSpec(layers=1, hidden=30, heads=4),
        RandomSpec(layers=1, hidden=28, heads=4),
        RandomSpec(layers=1, hidden=32, heads=4, kv_heads=3),
        RandomSpec(layers=0),
        RandomSpec(hidden=0),
        RandomSpec(context=0),
    ):
        with pytest.raises(ModelError, match="No network can have this shape"):
            spec.config(len(BYTES))


def test_the_network_has_the_shape_that_the_spec_says_or_its_hidden_size_lets_follow() -> None:
    decoder = native(
        load("random:layers=1,hidden=32,heads=4,kv_heads=2,ffn=48,context=128")
    ).decoder
    assert (len(decoder.layers), decoder.hidden, decoder.inner) == (1, 32, 48)
    assert (decoder.heads, decoder.kv_heads, decoder.width) == (4, 2, 8)
    assert (decoder.context, decoder.vocabulary) == (128, len(BYTES))
    decoder = native(load("random:layers=1,hidden=128")).decoder
    assert (decoder.heads, decoder.kv_heads, decoder.inner) == (2, 2, 512)


def test_the_seed_alone_decides_the_weights() -> None:
    def weights(seed: int) -> np.ndarray:
        made = RandomWeights(replace(SMALL, seed=seed), len(BYTES))
        return np.concatenate([made[name].floats().ravel() for name in made])

    first = weights(0)
    np.testing.assert_array_equal(first, weights(0))
    assert (first != weights(1)).mean() > 0.9
    assert (
        load("random:layers=1,hidden=32").fingerprint()
        != load("random:layers=1,hidden=32,seed=1").fingerprint()
    )


def test_random_networks_of_both_runtimes_are_one_network() -> None:
    spec = "random:layers=2,hidden=32,heads=4,kv_heads=2"
    prompt = np.array(BYTES.encode(["The sea, and the"])[0], np.int32)
    assert answers(load(spec), [prompt], 12) == [generated(stock_network(spec), prompt, 12)]


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """As data, in which the name of a special token is text like any other."""
    return tokenizer.encode([text])[0]


@given(st.text())
@example("a<|end|>b")
def test_the_byte_tokenizer_loses_nothing_and_has_one_token_per_byte(text: str) -> None:
    ids = encode(BYTES, text)
    assert len(ids) == len(text.encode())
    assert END_ID not in ids
    assert BYTES.decode(ids) == text
    assert BYTES.special_ids == {END: END_ID}


def test_odd_text_comes_back_as_it_was() -> None:
    trained = train_tokenizer(["don 't stop , now .", "a  b"], vocabulary=300)
    for text in ("a  b", " , .", 'q"{}', "nul\0", "é😀", "don 't", "\n\t "):
        for tokenizer in (BYTES, trained):
            assert tokenizer.decode(encode(tokenizer, text)) == text


def test_a_trained_tokenizer_has_at_most_its_vocabulary_and_shortens_its_texts() -> None:
    texts = [f"the movie number {n} is a good movie" for n in range(50)]
    tokenizer = train_tokenizer(texts, vocabulary=320)
    assert len(tokenizer) <= 320
    assert len(encode(tokenizer, texts[0])) < len(texts[0]) / 3
