"""A network is checked once, and again when anything that the check depends on has changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    DiffLlamaConfig,
    DiffLlamaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.networks import findings as module
from relquery.model.networks import load as loading
from relquery.model.networks.findings import FOLDER, Findings, keep, name_of, recall
from relquery.model.networks.load import LoadedModel, load
from relquery.model.networks.random import byte_tokenizer

SPEC = "random:layers=2,hidden=32,heads=2,ffn=64,context=64"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the networks that were checked."""
    checked: list[str] = []
    check = loading.check_same

    def spy(network: PreTrainedModel, *rest: Any) -> Any:
        checked.append(type(network).__name__)
        return check(network, *rest)

    monkeypatch.setattr(loading, "check_same", spy)
    return checked


def logits(model: LoadedModel) -> torch.Tensor:
    tokens = np.arange(7, dtype=np.int32) + 40
    chunk = Chunk(0, tokens, 0, (), np.arange(7))
    batch = PackedBatch([chunk], KVCache(8), share=True, device=torch.device("cpu"))
    return model.forward(tokens.astype(np.int64), batch, [6]).rows


def test_a_network_is_checked_once_and_computes_the_same(checks: list[str], kept: Path) -> None:
    first = load(SPEC)
    (file,) = kept.iterdir()
    second = load(SPEC)
    assert checks == ["LlamaForCausalLM"]
    assert torch.equal(logits(first), logits(second))
    assert type(first.forward) is type(second.forward)
    assert second.positions.relocatable
    file.write_text('{"layers": [')  # cut short
    assert torch.equal(logits(load(SPEC)), logits(first))
    assert len(checks) == 2
    load(SPEC)
    assert len(checks) == 2


def test_a_network_without_a_forward_pass_of_our_own_is_known_again(
    checks: list[str], tmp_path: Path
) -> None:
    tokenizer = byte_tokenizer()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    first, second = (load(str(tmp_path / "model")) for _ in range(2))
    assert checks == ["GPT2LMHeadModel"]
    assert torch.equal(logits(first), logits(second))
    assert first.release == second.release


def test_what_the_check_depends_on_is_in_the_name(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(SPEC)
    load(SPEC, dtype="bfloat16")
    load(SPEC.replace("context=64", "context=128"))
    assert len(checks) == 3
    load(SPEC.replace("context=64", "context=64,seed=5"))  # other weights alone
    assert len(checks) == 4
    monkeypatch.setattr(module, "_own_code", lambda: "changed")
    load(SPEC)
    assert len(checks) == 5


def test_weights_that_hide_a_difference_do_not_hide_it_for_those_that_come_after(
    tmp_path: Path,
) -> None:
    tokenizer, folder = byte_tokenizer(), tmp_path / "model"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    trained = DiffLlamaForCausalLM(DiffLlamaConfig(vocab_size=len(tokenizer), **sizes, **heads))
    untrained = copy.deepcopy(trained)
    for layer in untrained.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
    tokenizer.save_pretrained(folder)
    untrained.save_pretrained(folder)
    load(str(folder))
    trained.save_pretrained(folder)
    with pytest.raises(ModelError, match="would be off by"):
        load(str(folder))


def test_the_name_tells_classes_apart() -> None:
    network = load(SPEC).network
    before = name_of(network)
    network.__class__ = type("Other", (type(network),), {})
    assert name_of(network) != before


def test_nothing_is_kept_where_it_is_turned_off(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, "off")
    load(SPEC)
    load(SPEC)
    assert len(checks) == 2


def test_a_folder_that_cannot_be_written_to_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    keep("name", Findings((), ""))
    assert recall("name") is None
