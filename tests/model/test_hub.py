"""The hub's cache, read without the hub's client, which is the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from relquery.model.hub import cached_repositories, find_folder, in_cache, whole_in_cache

COMMIT = "2" * 40
NOTHING = (2).to_bytes(8, "little") + b"{}"
"""A file of no weights."""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def placed(cache: Path, repository: str, *names: str) -> None:
    home = cache / f"models--{repository.replace('/', '--')}"
    for path in (home / "refs" / "main", *(home / "snapshots" / COMMIT / name for name in names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(NOTHING if path.suffix == ".safetensors" else COMMIT.encode())


def stock(cache: Path, repository: str) -> Path | None:
    try:
        return Path(snapshot_download(repository, cache_dir=cache, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def test_a_repository_is_found_where_the_client_finds_it(cache: Path) -> None:
    placed(cache, "owner/whole-model", "config.json", "model.safetensors")
    placed(cache, "owner/part", "config.json")
    placed(cache, "bare")
    for name in ("owner/whole-model", "owner/part", "bare", "owner/none"):
        assert in_cache(name) == stock(cache, name), name
    assert whole_in_cache("owner/whole-model") == find_folder("owner/whole-model")
    assert whole_in_cache("owner/part") is None
    weights = stock(cache, "owner/whole-model") / "model.safetensors"  # type: ignore[operator]
    for damaged in (b"", NOTHING[:-1], NOTHING + b"0"):
        weights.write_bytes(damaged)
        assert whole_in_cache("owner/whole-model") is None
    assert list(cached_repositories()) == ["bare", "owner/part", "owner/whole-model"]
    for name in ("../owner", "owner/../whole-model", "a/b/c", ""):
        assert in_cache(name) is None


@pytest.mark.parametrize("variable", ["HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_is_where_the_environment_says(
    cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv(variable, str(cache / "x"))
    placed(
        cache / ("x/hub" if variable == "HF_HOME" else "x/huggingface/hub"), "o/n", "config.json"
    )
    assert in_cache("o/n") is not None
