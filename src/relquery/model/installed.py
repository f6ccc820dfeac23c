"""The models on this machine: in the hub's cache, and in Ollama's and LM Studio's stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relquery.errors import ModelError
from relquery.model.formats.safetensors import weight_files
from relquery.model.gguf_store import find_in_ollama, lm_studio, models_in, ollama
from relquery.model.hub import cached_repositories, in_cache, whole_in_cache


@dataclass(frozen=True, slots=True)
class Installed:
    """A model whose files are all here."""

    name: str
    """As `-m` and `embedder=` take it."""
    where: str
    """Whose store it is in."""
    size: int
    """Bytes of its weights' files."""


def installed() -> list[Installed]:
    """The models that are here, by store and name. Damaged ones are left out."""
    return [*_of_hub(), *_of_lm_studio(), *_of_ollama()]


def _of_hub() -> Iterator[Installed]:
    for repository in cached_repositories():
        whole = whole_in_cache(repository)
        if whole is not None:
            files = [whole / name for name in weight_files(whole)]
            yield Installed(repository, "hub cache", _size(files))
        elif folder := in_cache(repository):
            yield from _files(folder, repository, "hub cache")


def _of_lm_studio() -> Iterator[Installed]:
    for store in lm_studio():
        for folder in sorted(store.glob("*/*")):
            yield from _files(folder, str(folder.relative_to(store).as_posix()), "LM Studio")


def _of_ollama() -> Iterator[Installed]:
    manifests = ollama() / "manifests"
    for manifest in sorted(manifests.glob("*/*/*/*")):
        host, owner, name, tag = manifest.relative_to(manifests).parts
        spec = f"{host}/{owner}/{name}:{tag}"
        spec = spec.removeprefix("registry.ollama.ai/").removeprefix("library/")
        try:
            blob = find_in_ollama(spec)
        except ModelError:
            continue
        if blob is not None:
            yield Installed(spec, "Ollama", _size([blob]))


def _files(folder: Path, repository: str, where: str) -> Iterator[Installed]:
    for wanted, files in models_in(folder).items():
        yield Installed(f"{repository}:{wanted}", where, _size(files))


def _size(files: list[Path]) -> int:
    return sum(each.stat().st_size for each in files)
