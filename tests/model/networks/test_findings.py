"""A network is checked once, and again when anything that the check depends on has changed."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DiffLlamaConfig,
    DiffLlamaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from relquery.backends.local.open import load_backend
from relquery.connection import connect
from relquery.engine.executor import Chunk
from relquery.errors import ModelError
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward.packed import PackedWeight
from relquery.model.networks import findings as module
from relquery.model.networks import load as loading
from relquery.model.networks.findings import FOLDER, Findings, keep, name_of, recall
from relquery.model.networks.fingerprint import fingerprint
from relquery.model.networks.load import LoadedModel, load
from relquery.model.networks.random import (
    RandomSpec,
    build_network,
    byte_tokenizer,
    train_tokenizer,
)

SPEC = "random:layers=2,hidden=32,heads=2,ffn=64,context=64"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the networks that were checked."""
    checked: list[str] = []
    check: Any = vars(loading)["check_same"]

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
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
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


# ---- fingerprints

QUERY = "SELECT LLM('Say', id, labels := ['a', 'b']) FROM (VALUES (1), (2)) t(id)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as people have it: a folder."""
    path = tmp_path_factory.mktemp("models") / "small"
    tokenizer = train_tokenizer(["ab abc"], vocabulary=260)
    spec = RandomSpec(layers=1, hidden=64, context=256)
    network: Any = build_network(spec, tokenizer, torch.float32)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    shutil.copytree(folder, path)
    return path


def last_weight(path: Path) -> None:
    """One of many thousand, by as little as can be."""
    file = path / "model.safetensors"
    weights = load_file(file)
    name = max(weights, key=lambda each: weights[each].numel())
    last = weights[name].view(-1)[-1:]
    last.copy_(torch.nextafter(last, torch.tensor(9.0)))
    save_file(weights, file, {"format": "pt"})


def in_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        document = json.loads((path / name).read_text(encoding="utf-8"))
        change(document)
        (path / name).write_text(json.dumps(document), encoding="utf-8")

    return edit


def swap_merges(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["merges"].reverse()


CHANGES: dict[str, Callable[[Path], object]] = {
    "a weight": last_weight,
    "a setting": in_json("config.json", lambda config: config.update(rms_norm_eps=1e-5)),
    "the end": in_json("generation_config.json", lambda config: config.update(eos_token_id=[0, 5])),
    "merges": in_json("tokenizer.json", swap_merges),
    "a normalizer": in_json("tokenizer.json", lambda it: it.update(normalizer={"type": "NFC"})),
    "a template": lambda path: (path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m['content'] }}{% endfor %}", encoding="utf-8"
    ),
}


def test_a_change_of_the_folder_is_another_model(folder: Path, tmp_path: Path) -> None:
    first = fingerprint(load(str(folder)))
    assert fingerprint(load(str(shutil.copytree(folder, tmp_path / "as it was")))) == first
    for name, change in CHANGES.items():
        change(path := Path(shutil.copytree(folder, tmp_path / name)))
        assert fingerprint(load(str(path))) != first, name
    assert fingerprint(load(str(folder), dtype="bfloat16")) != first


def test_a_fingerprint_is_the_same_after_use(folder: Path) -> None:
    backend = load_backend(str(folder))
    before = fingerprint(load(str(folder)))
    with connect(backend) as con:
        con.sql(QUERY)
    assert backend.known_as()[0] == f"sha256:{before}"
    backend.close()


def test_large_weights_count_to_their_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("random:layers=1,hidden=64")
    found = set()
    for size in (2**24, 1000, 999):  # one piece, several, with bytes of a number in two of them
        monkeypatch.setattr("relquery.model.networks.fingerprint._PIECE_BYTES", size)
        found.add(fingerprint(model))
    network: Any = model.network
    layer = network.model.layers[0].mlp.down_proj
    weight = layer.weight
    weight.view(-1)[-1] += 1
    layer.packed = PackedWeight(weight, None)
    assert fingerprint(model) not in found


def test_random_models_are_told_apart_by_their_seed() -> None:
    models = [load(f"random:layers=1,hidden=64,seed={seed}") for seed in (1, 1, 2)]
    first, again, other = map(fingerprint, models)
    assert first == again != other


def test_a_folder_finds_its_answers_where_it_was_moved_and_not_where_its_weights_changed(
    copied: Path, tmp_path: Path
) -> None:
    moved, calls = tmp_path / "moved", []
    for change in (None, lambda path: path.rename(moved), last_weight, None):
        path = moved if moved.exists() else copied
        if change is not None:
            change(path)
        path = moved if moved.exists() else copied
        with connect(str(path), ledger=tmp_path / "answers.db") as con:
            calls.append(con.sql(QUERY).report.calls)
    assert calls == [2, 0, 2, 0]


def test_older_ledgers_count_where_the_name_tells_the_weights(folder: Path) -> None:
    for model, older in (("demo", True), ("random:layers=1,hidden=64", True), (str(folder), False)):
        backend = load_backend(model)
        assert backend.known_as()[1:] == ((backend.name,) if older else ())
        backend.close()
