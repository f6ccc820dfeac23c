"""Where names of GGUF files lead: to files, folders, Ollama's and LM Studio's stores, the hub."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from relquery.backends import load as backends
from relquery.errors import ConfigError, ModelError
from relquery.model import gguf_store
from relquery.model.formats.gguf import read_gguf
from relquery.model.gguf_store import find_gguf
from tests.model.oracle.architectures import build
from tests.model.oracle.written_gguf import write_gguf


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def placed(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_a_file_and_a_folder_with_one_are_found(home: Path) -> None:
    file = placed(home / "one" / "model.gguf")
    assert find_gguf(str(file)) == find_gguf(str(file.parent)) == file
    assert find_gguf("~/one/model.gguf") == file
    assert find_gguf("owner/name") is None
    placed(home / "one" / "config.json")
    assert find_gguf(str(file.parent)) is None


def test_what_is_no_such_file_says_so(home: Path) -> None:
    placed(home / "two" / "a.gguf"), placed(home / "two" / "b.gguf")
    (home / "text.gguf").write_text("text")
    for name in ("~nobody-of-this-name/m.gguf", "x" * 300):
        with pytest.raises(ModelError, match="is no path"):
            find_gguf(name)
    for name, said in (
        ("two", "several models: a.gguf, b.gguf"),
        ("text.gguf", "is not a GGUF file"),
        ("none.gguf", "does not exist"),
    ):
        with pytest.raises(ModelError, match=said):
            find_gguf(str(home / name))


def test_a_model_that_is_split_is_whole(home: Path) -> None:
    (home / "split").mkdir()
    write_gguf(build("llama"), home / "split" / "m.gguf", split=16)
    parts = [home / "split" / f"m-{number:05}-of-00002.gguf" for number in (1, 2)]
    assert find_gguf(str(home / "split")) == parts[0]
    assert read_gguf(parts[0]).weights.keys() == read_gguf(parts[1]).weights.keys()
    assert len(read_gguf(parts[0]).weights) > 16
    kept = parts[1].read_bytes()
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(ModelError, match="not part 2 of 2"):
        read_gguf(parts[0])
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"m-00002-of-00002\.gguf is not beside it"):
        read_gguf(parts[0])
    odd = home / "m-00001-of-00000.gguf"
    odd.write_bytes(kept)
    assert find_gguf(str(home)) == odd


def test_ollamas_models_are_found_by_name_and_tag(home: Path) -> None:
    store = home / ".ollama" / "models"
    file = placed(store / "blobs" / "sha256-12")
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / "smol" / "latest"
    placed(manifest).write_text(
        json.dumps(
            {
                "layers": [
                    {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:3"},
                    {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"},
                ]
            }
        )
    )
    assert find_gguf("smol") == find_gguf("smol:latest") == find_gguf("library/smol") == file
    theirs = store / "manifests" / "hf.co" / "me" / "mine" / "Q4_0"
    placed(theirs).write_text(manifest.read_text())
    assert find_gguf("hf.co/me/mine:Q4_0") == file
    assert find_gguf("smol:1b") is None
    with pytest.raises(ConfigError, match="'smol' is not supported"):
        backends.load("smol:1b")
    with pytest.raises(ModelError, match="cannot be read as GGUF"):
        backends.load("smol:latest")
    file.unlink()
    with pytest.raises(ModelError, match="ollama pull smol"):
        find_gguf("smol")
    manifest.write_text("{}")
    with pytest.raises(ModelError, match="ollama pull smol"):
        find_gguf("smol")


def test_lm_studios_models_are_found_by_format(home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "owner" / "Name-GGUF"
    file = placed(folder / "name-Q4_K_M.gguf")
    placed(folder / "name-Q4_K_S.gguf")
    placed(folder / "mmproj-Q4_K_M.gguf")
    for wanted in ("Q4_K_M", "q4_k_m", "name-Q4_K_M.gguf"):
        assert find_gguf(f"owner/Name-GGUF:{wanted}") == file


def test_the_hub_has_what_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a/name-Q8_0-00001-of-00002.gguf", "a/name-Q8_0-00002-of-00002.gguf", "n.Q4_0.gguf"]
    listed = SimpleNamespace(siblings=[SimpleNamespace(rfilename=each) for each in names])
    fetched = list[str]()

    def fetch(repository: str, names: list[str]) -> Path:
        fetched.extend(f"{repository}/{name}" for name in names)
        return home

    monkeypatch.setattr(gguf_store, "ask_hub", lambda repository: listed)
    monkeypatch.setattr(gguf_store, "download", fetch)
    assert find_gguf("o/n:Q8_0") == home / names[0]
    assert fetched == [f"o/n/{each}" for each in names[:2]]
    assert find_gguf("o/n:Q4_0") == home / names[2]
    with pytest.raises(ModelError, match=r"no GGUF file of 'Q6_K'.*n\.Q4_0\.gguf"):
        find_gguf("o/n:Q6_K")
