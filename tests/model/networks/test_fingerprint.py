"""A model's fingerprint: all that determines its answers, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.stock import stock_tokenizer
from relquery.backends.local.open import load_backend
from relquery.connection import connect
from relquery.model.load import load
from relquery.model.networks.random import RandomSpec, train_tokenizer
from relquery.model.served import ServedModel
from relquery.model.torch_runtime.load import load as load_torch
from relquery.model.torch_runtime.load import random_network

QUERY = "SELECT LLM('Say', id, labels := ['a', 'b']) FROM (VALUES (1), (2)) t(id)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as people have it: a folder."""
    path = tmp_path_factory.mktemp("models") / "small"
    tokenizer = train_tokenizer(["ab abc"], vocabulary=260)
    spec = RandomSpec(layers=1, hidden=64, context=256)
    random_network(spec, tokenizer, torch.float32).save_pretrained(path)
    stock_tokenizer(tokenizer).save_pretrained(path)
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


@pytest.mark.parametrize("load", [load, load_torch])
def test_a_change_of_the_folder_is_another_model(
    load: Callable[..., ServedModel], folder: Path, tmp_path: Path
) -> None:
    first = load(str(folder)).fingerprint()
    moved = Path(shutil.copytree(folder, tmp_path / "as it was"))
    in_json("config.json", lambda it: it.update(_name_or_path="x", transformers_version="9"))(moved)
    assert load(str(moved)).fingerprint() == first
    for name, change in CHANGES.items():
        change(path := Path(shutil.copytree(folder, tmp_path / name)))
        assert load(str(path)).fingerprint() != first, name
    assert load(str(folder), dtype="bfloat16").fingerprint() != first


def test_a_fingerprint_is_the_same_after_use(folder: Path) -> None:
    backend = load_backend(str(folder))
    before = load(str(folder)).fingerprint()
    with connect(backend) as con:
        con.sql(QUERY)
    assert backend.known_as()[0] == before
    backend.close()


def test_large_weights_count_to_their_last_piece(
    folder: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_weight(copied)
    for size in (2**24, 1000, 999):  # one piece, several, with bytes of a number in two of them
        for module in ("formats.safetensors", "torch_runtime.load"):
            monkeypatch.setattr(f"relquery.model.{module}._PIECE_BYTES", size)
        for opened in (load, load_torch):
            assert opened(str(folder)).fingerprint() != opened(str(copied)).fingerprint()


def test_random_models_are_told_apart_by_their_seed() -> None:
    models = [load(f"random:layers=1,hidden=64,seed={seed}") for seed in (1, 1, 2)]
    first, again, other = (model.fingerprint() for model in models)
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
