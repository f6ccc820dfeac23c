"""Model folders: on this machine, in the local cache, or on the hub."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from relquery.errors import ModelError, did_you_mean
from relquery.model.formats.adapter import CONFIG, WEIGHTS
from relquery.model.formats.safetensors import is_whole, weight_files

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

_TEXTS = ["*.json", "*.jinja", "*.model", "*.txt"]
_REPOSITORY = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_FOLDER_OF = "models--"
_LARGE = 1 << 20  # bytes from which a file is worth resuming
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a disk that is full, or may not be written to."""
_SHA256 = 64  # digits of an etag that is a digest of the file


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of thing that a name should mean, in messages. known: all that a person can give.
    names: of those. config: its file of settings. weights: its file of weights; "" where an index
    may name several."""

    noun: str
    what: str
    known: str
    names: tuple[str, ...]
    config: str = "config.json"
    weights: str = ""

    def files(self, folder: Path) -> list[str]:
        """Names of its files of weights."""
        return [self.weights] if self.weights else weight_files(folder)


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
    ("tfidf", "auto"),
)
ADAPTER = Kind(
    "adapter",
    "an adapter",
    f"a folder with {CONFIG} and {WEIGHTS}, or a Hugging Face name",
    (),
    CONFIG,
    WEIGHTS,
)


def find_folder(spec: str, kind: Kind = MODEL) -> Path:
    """The folder of a model, which is downloaded if it is not here. Raises ModelError."""
    folder = Path(spec)
    if folder.is_dir():
        if not (folder / kind.config).is_file():
            raise ModelError(
                f"{kind.noun.title()} '{spec}' is not a folder of {kind.what}: it has no "
                f"{kind.config}. Give {kind.known}."
            )
        return folder
    if spec.startswith((".", "/", "~")):
        raise ModelError(f"The {kind.noun} folder {spec} does not exist. Check the path.")
    try:
        return whole_in_cache(spec, kind) or _from_hub(spec, kind)
    except ModelError:
        raise
    except Exception as error:  # anything the hub's client raises, including network errors
        if (cached := in_cache(spec)) and (cached / kind.config).is_file():
            raise ModelError(
                f"The files of {kind.noun} '{spec}' in {cached} are not whole, and cannot be "
                f"downloaded again: {error}"
            ) from error
        why = " ".join((str(error).strip().splitlines() or [type(error).__name__])[:2])
        raise ModelError(
            f"{kind.noun.title()} '{spec}' is neither a folder nor found on the hub: {why} Give "
            f"{kind.known}." + did_you_mean(spec, kind.names)
        ) from error


def cache_folder() -> Path:
    """Where the hub's client keeps what it downloads."""
    told = os.environ
    root = told.get("XDG_CACHE_HOME") or "~/.cache"
    home = told.get("HF_HOME") or f"{root}/huggingface"
    given = told.get("HF_HUB_CACHE") or told.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(given)).expanduser()


def in_cache(repository: str) -> Path | None:
    """The folder of a repository in the hub's cache, with the files that were downloaded.

    Found by two looks at the disk: to import the hub's client takes half a second.
    """
    if not _REPOSITORY.fullmatch(repository):
        return None
    home = cache_folder() / _folder_name(repository)
    try:
        folder = home / "snapshots" / (home / "refs" / "main").read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    return folder if folder.is_dir() else None


def whole_in_cache(repository: str, kind: Kind = MODEL) -> Path | None:
    """The folder of a model that was downloaded before, if it has all of its weights."""
    folder = in_cache(repository)
    if folder is None or not (folder / kind.config).is_file():
        return None
    try:
        return folder if is_whole(folder, kind.files(folder)) else None
    except ModelError:  # of an index that cannot be read
        return None


def cached_repositories() -> Iterator[str]:
    """Names of the models of which the hub's cache has files."""
    for folder in sorted(cache_folder().glob(f"{_FOLDER_OF}*")):
        yield folder.name.removeprefix(_FOLDER_OF).replace("--", "/", 1)


def download(repository: str, names: Sequence[str], beside: Sequence[str] = ()) -> Path:
    """Files of a repository in the hub's cache, downloaded where they are not there: the folder.

    beside: patterns of small files that come with them. Of a file that was interrupted, also by
    Ctrl-C, only the rest is downloaded; the hub's client would begin it anew. Raises what the
    client raises, and ModelError for a disk that cannot be written to and for damage on the way.
    """
    from huggingface_hub import snapshot_download

    try:
        for name in names:
            _complete(repository, name)
        return Path(snapshot_download(repository, allow_patterns=[*beside, *names]))
    except OSError as error:
        if error.errno not in _OF_DISK:
            raise
        raise ModelError(
            f"What is downloaded cannot be written to {cache_folder()}: {error}. Make room on its "
            "disk, or set HF_HOME to a folder on another one."
        ) from error


def _folder_name(repository: str) -> str:
    return _FOLDER_OF + repository.replace("/", "--")


def _from_hub(spec: str, kind: Kind) -> Path:
    ask_hub(spec)
    folder = download(spec, (), _TEXTS)
    return download(spec, kind.files(folder), _TEXTS)


def _complete(repository: str, name: str) -> None:
    """Download what is missing of a large file, to where the hub's client finds it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        WeakFileLock,
        build_hf_headers,
    )

    url = hf_hub_url(repository, name)
    told = get_hf_file_metadata(url)
    if told.etag is None or told.size is None or told.size < _LARGE:
        return
    headers = build_hf_headers()
    if urlsplit(told.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # of the hub, and the file lies elsewhere
    cache, folder = cache_folder(), _folder_name(repository)
    blob = cache / folder / "blobs" / told.etag
    lock = cache / ".locks" / folder / f"{told.etag}.lock"  # that of the client
    for each in (blob, lock):
        each.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return
        part = blob.with_name(f"{told.etag}.part")
        with part.open("ab") as file:
            done = file.tell() if file.tell() <= told.size else file.truncate(0)
            http_get(
                told.location,
                file,
                resume_size=done,
                headers=headers,
                expected_size=told.size,
                displayed_filename=name,
            )
        if len(told.etag) == _SHA256 and _digest(part) != told.etag:
            part.unlink()
            raise ModelError(f"{name} was damaged on its way, and is deleted. Download it again.")
        part.replace(blob)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def ask_hub(spec: str) -> ModelInfo:
    """What the hub has of a model. Its files in the cache that have other sizes are deleted.

    Fails at once if the hub does not have it; a download would keep retrying.
    """
    from huggingface_hub import model_info
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        told = model_info(spec, timeout=10, files_metadata=True)
    except HFValidationError:
        raise
    except HfHubHTTPError as error:
        raise OSError(
            f"The hub said: {str(error).strip()}. Check the name. If the model is private, or has "
            "terms to accept, accept them on its page and set HF_TOKEN."
        ) from error
    except Exception as error:  # anything the hub's client raises, including network errors
        raise OSError(
            f"The hub cannot be reached: {str(error).strip().rstrip('.')}. Check the network, or "
            "copy the model's folder from another machine and give its path."
        ) from error
    for each in told.siblings or ():
        held = cache_folder() / _folder_name(spec) / "snapshots" / str(told.sha) / each.rfilename
        if each.size is not None and held.is_file() and held.stat().st_size != each.size:
            held.resolve().unlink()
            held.unlink(missing_ok=True)
    return told


def repair(repository: str) -> None:
    """Delete files of a repository in the cache that are not as long as the hub says, if it can be
    reached."""
    if in_cache(repository):
        with suppress(OSError):
            ask_hub(repository)
