"""Places of GGUF files: in a folder, in Ollama's or LM Studio's store, or on the hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from relquery.errors import ModelError
from relquery.model.formats.gguf import is_gguf, parts_of
from relquery.model.hub import ask_hub, download, in_cache

_ENDING = ".gguf"
_OF_HUB = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*):(?P<wanted>[\w.-]+)")
_BESIDE = "mmproj"  # in names of files that read pictures, beside those of models
_FORMAT = re.compile(r"(?:iq|q|f|bf|mxfp)\d.*", re.I)
_FORMAT_OF = re.compile(r"(?:.*[-._/])?((?:iq|q|f|bf|mxfp)\d\w*?)(?:-\d+-of-\d+)?\.gguf", re.I)
_OF_OLLAMA = re.compile(r"(?P<name>[\w./-]+?)(?::(?P<tag>[\w.-]+))?")
_OLLAMA_HOME, _OLLAMA_OWN = "registry.ollama.ai", "library"
_WEIGHTS = "application/vnd.ollama.image.model"
_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")


def find_gguf(spec: str) -> Path | None:
    """The file, or the first of several, that a name means; None if it means no GGUF file.

    spec: a file; a folder with one model; "OWNER/NAME:Q4_K_M", which is looked for in LM Studio's
    folder and on the hub; or "NAME:TAG" of Ollama. Raises ModelError.
    """
    try:
        path = Path(spec).expanduser()
        path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, no such user, a 0
        raise ModelError(f"'{spec}' is no path: {error}. Check it.") from error
    if path.is_file():
        if not is_gguf(path):
            raise ModelError(
                f"The file '{spec}' is not a GGUF file. Give one, or the folder of a model."
            )
        return path
    if path.is_dir():
        files = [each.name for each in path.glob(f"*{_ENDING}") if _BESIDE not in each.name]
        is_other = (path / "config.json").is_file() or not files
        return None if is_other else path / _only(files, spec, "Name one of its files")
    if stored := find_in_ollama(spec):
        return stored
    if match := _OF_HUB.fullmatch(spec):
        return _downloaded(match["repository"], match["wanted"])
    if spec.endswith(_ENDING):
        raise ModelError(f"The file '{spec}' does not exist. Check the path.")
    return None


def ollama() -> Path:
    """The folder of Ollama's models, which need not be there."""
    return Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")


def lm_studio() -> list[Path]:
    """The folders in which LM Studio may have models."""
    return [Path.home() / each for each in _LM_STUDIO]


def find_in_ollama(spec: str) -> Path | None:
    """The file of a model that Ollama has downloaded, "NAME" or "NAME:TAG"; else None."""
    match = _OF_OLLAMA.fullmatch(spec)
    if match is None or ".." in spec:
        return None
    store = ollama()
    parts = match["name"].split("/")
    host = parts.pop(0) if len(parts) > 2 else _OLLAMA_HOME
    name = "/".join(parts if len(parts) > 1 else [_OLLAMA_OWN, *parts])
    manifest = store / "manifests" / host / name / (match["tag"] or "latest")
    if not manifest.is_file():
        return None
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digest = next(each["digest"] for each in layers if each["mediaType"] == _WEIGHTS)
        blob = store / "blobs" / str(digest).replace(":", "-")
        if not blob.is_file():
            raise FileNotFoundError(str(blob))
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        raise ModelError(
            f"Ollama's manifest {manifest} cannot be read: {error!r}. Run `ollama pull {spec}`."
        ) from error
    return blob


def _downloaded(repository: str, wanted: str) -> Path:
    """A file of a repository in LM Studio's folder or the hub's cache, or downloaded now."""
    for folder in (*(each / repository for each in lm_studio()), in_cache(repository)):
        if folder is not None:
            names = [str(each.relative_to(folder)) for each in folder.rglob(f"*{_ENDING}")]
            name = _of(names, wanted)
            if name and all((folder / each).is_file() for each in _beside(name)):
                return folder / name
    try:
        names = [each.rfilename for each in ask_hub(repository).siblings or []]
        name = _of(names, wanted)
        if name is not None:
            return download(repository, _beside(name)) / name
    except ModelError:
        raise
    except Exception as error:  # anything the hub's client raises, including network errors
        raise ModelError(
            f"Model '{repository}:{wanted}' is neither downloaded nor found on the hub: {error}"
        ) from error
    here = ", ".join(sorted(each for each in names if each.endswith(_ENDING))) or "none"
    raise ModelError(
        f"The repository {repository} has no GGUF file of '{wanted}'. Those that it has: {here}."
    )


def _of(names: Iterable[str], wanted: str) -> str | None:
    """The first file that is named by a format, or by its whole name."""
    before = "[-._/]" if _FORMAT.fullmatch(wanted) else "[-./]"
    said = re.compile(rf"(?:^|.*{before}){re.escape(wanted)}(?:-\d+-of-\d+)?(?:\.gguf)?", re.I)
    matching = sorted(
        each
        for each in names
        if said.fullmatch(each) and each.endswith(_ENDING) and _BESIDE not in each
    )
    return matching[0] if matching else None


def models_in(folder: Path) -> dict[str, list[Path]]:
    """The GGUF models below a folder, by what stands after the colon of their names: their format,
    or the name of their file. Only those with all of their parts."""
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob(f"*{_ENDING}")):
        name = str(file.relative_to(folder))
        parts = [folder / each for each in _beside(name)]
        if _BESIDE not in name and parts[0] == file and all(each.is_file() for each in parts):
            format_of = _FORMAT_OF.fullmatch(name)
            files.setdefault(format_of[1].upper() if format_of else name, parts)
    return files


def _beside(name: str) -> list[str]:
    """A file and those that it is split into."""
    folder, _, last = name.rpartition("/")
    return [f"{folder}/{each}" if folder else each for each in parts_of(last)]


def _only(names: Iterable[str], spec: str, remedy: str) -> str:
    """The only model among files. Raises ModelError."""
    models = sorted({parts_of(each)[0] for each in names})
    if len(models) > 1:
        raise ModelError(f"'{spec}' has several models: {', '.join(models)}. {remedy}.")
    return models[0]
