"""Model folders: on this machine, in the local cache, or on the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relquery.errors import ModelError, did_you_mean
from relquery.model.formats.safetensors import weight_files

_TEXTS = ["*.json", "*.jinja", "*.model", "*.txt"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a name should mean, in messages. known: all that a person can give. names: of those."""

    noun: str
    what: str
    known: str
    names: tuple[str, ...]


_FOLDER = "a folder with config.json and model.safetensors, a Hugging Face name"
MODEL = Kind(
    "model",
    "a model that generates text",
    f"'demo', {_FOLDER}, or 'random:layers=8,hidden=256'",
    ("demo",),
)
ENCODER = Kind(
    "encoder",
    "an encoder",
    f"'tfidf' for search by words, {_FOLDER}, or 'openai:NAME' for an endpoint",
    ("tfidf",),
)


def find_folder(spec: str, kind: Kind = MODEL) -> Path:
    """The folder of a model, which is downloaded if it is not here. Raises ModelError."""
    folder = Path(spec)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"{kind.noun.title()} '{spec}' is not a folder of {kind.what}: it has no "
                f"config.json. Give {kind.known}."
            )
        return folder
    if spec.startswith((".", "/", "~")):
        raise ModelError(f"The {kind.noun} folder {spec} does not exist. Check the path.")
    try:
        return _from_cache(spec) or _from_hub(spec)
    except Exception as error:  # anything the hub's client raises, including network errors
        why = " ".join((str(error).strip().splitlines() or [type(error).__name__])[:2])
        raise ModelError(
            f"{kind.noun.title()} '{spec}' is neither a folder nor found on the hub: {why} Give "
            f"{kind.known}." + did_you_mean(spec, kind.names)
        ) from error


def _from_cache(spec: str) -> Path | None:
    """The folder of a model that was downloaded before, if it is whole."""
    from huggingface_hub import snapshot_download  # its import takes half a second
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(spec, local_files_only=True, allow_patterns=_TEXTS))
    except LocalEntryNotFoundError:
        return None
    is_whole = (folder / "config.json").is_file() and all(
        (folder / name).is_file() for name in weight_files(folder)
    )
    return folder if is_whole else None


def _from_hub(spec: str) -> Path:
    from huggingface_hub import snapshot_download

    ask_hub(spec)
    folder = Path(snapshot_download(spec, allow_patterns=_TEXTS))
    return Path(snapshot_download(spec, allow_patterns=[*_TEXTS, *weight_files(folder)]))


def ask_hub(spec: str) -> None:
    """Fail at once if the hub does not have a model; a download would keep retrying."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import HfHubHTTPError

    try:
        model_info(spec, timeout=10)
    except HfHubHTTPError as error:
        raise OSError(f"The hub said: {str(error).strip()}.") from error
    except Exception as error:  # anything the hub's client raises, including network errors
        raise OSError(f"The hub cannot be reached: {str(error).strip()}.") from error
