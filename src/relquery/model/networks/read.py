"""Reading a network and its tokenizer: from a folder, the local cache, or the hub."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import model_info
from huggingface_hub.errors import HfHubHTTPError
from safetensors import SafetensorError
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from relquery.errors import ModelError, did_you_mean

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_UNREAD = "pooler."  # of an encoder; we pool its states ourselves
_OF_A_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.\d+\.")


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


def read_tokenizer(spec: str, kind: Kind = MODEL) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or name. Raises ModelError."""
    folder = Path(spec)
    _check_json(folder / "config.json")
    try:
        return cast(PreTrainedTokenizerBase, _from_hub(AutoTokenizer, spec, kind))
    except ModelError as error:
        is_there = any((folder / name).exists() for name in _TOKENIZERS)
        if is_there or not (folder / "config.json").exists():
            raise
        raise ModelError(
            f"The {kind.noun} folder {spec} has no tokenizer that can be read. Write one to it "
            "with AutoTokenizer.from_pretrained(...).save_pretrained(folder), or pass tokenizer=."
        ) from error


def read_network(spec: str, dtype: torch.dtype) -> PreTrainedModel:
    """The network of a model folder or name, all of whose weights are there. Raises ModelError."""
    _check_json(Path(spec) / "generation_config.json")
    return _whole_network(AutoModelForCausalLM, spec, dtype, MODEL)


def read_encoder(spec: str) -> PreTrainedModel:
    """The network of an encoder, without a head, in float32. Raises ModelError."""
    return _whole_network(AutoModel, spec, torch.float32, ENCODER)


def _whole_network(loader: Any, spec: str, dtype: torch.dtype, kind: Kind) -> PreTrainedModel:
    _check_json(Path(spec) / "config.json")
    try:
        network, found = _from_hub(
            loader, spec, kind, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    except SafetensorError as error:
        raise ModelError(
            f"The weights of model '{spec}' cannot be read: {error}. A file may be cut short; "
            "download it again."
        ) from error
    except RuntimeError as error:
        raise ModelError(
            f"The weights of model '{spec}' do not have the sizes that its config.json says. "
            "Use the config.json that belongs to them."
        ) from error
    missing = sorted(one for one in found["missing_keys"] if not one.startswith(_UNREAD))
    if missing:  # they would be random numbers
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            f"Model '{spec}' lacks weights that its network has: {', '.join(missing[:3])}{more}. "
            f"Download it again, or give {kind.what}."
        )
    unused = sorted(name for name in found["unexpected_keys"] if _OF_A_LAYER.search(name))
    if unused:
        raise ModelError(
            f"Model '{spec}' has weights that its network has no place for, such as {unused[0]}. "
            "Use the config.json that belongs to them."
        )
    return cast(PreTrainedModel, network)


def _check_json(file: Path) -> None:
    """Raise ModelError if a file is there and is not a JSON object with sensible end tokens."""
    if not file.is_file():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}. Download it again.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} is not a JSON object. Download it again.")
    end = content.get("eos_token_id")
    ids = end if isinstance(end, list) else [end]
    if not all(one is None or (type(one) is int and one >= 0) for one in ids):
        raise ModelError(
            f"{file}: eos_token_id is {end!r}; it must be a token id, or a list of them."
        )


def _from_hub(loader: Any, spec: str, kind: Kind, **options: Any) -> Any:
    """Load from a folder, from the local cache, or otherwise from the hub."""
    here = Path(spec).is_dir()
    if not here and spec.startswith((".", "/", "~")):
        raise ModelError(f"The {kind.noun} folder {spec} does not exist. Check the path.")
    try:
        try:
            return loader.from_pretrained(
                spec, trust_remote_code=False, local_files_only=True, **options
            )
        except OSError:
            if here:
                raise
            _ask_hub(spec)
            return loader.from_pretrained(spec, trust_remote_code=False, **options)
    except (SafetensorError, RuntimeError):
        raise  # of the weights
    except Exception as error:  # a configuration may make the library fail in any way
        what = (
            f"is not a folder of {kind.what}"
            if here
            else "is neither a folder nor found on the hub"
        )
        has_config = not here or (Path(spec) / "config.json").exists()
        said = str(error).strip().splitlines() or [type(error).__name__]
        why = " ".join(said[:2]) if has_config else "it has no config.json."
        if here and has_config and not isinstance(error, OSError):
            raise ModelError(f"{kind.noun.title()} '{spec}' cannot be loaded: {why}") from error
        raise ModelError(
            f"{kind.noun.title()} '{spec}' {what}: {why} Give {kind.known}."
            + did_you_mean(spec, kind.names)
        ) from error


def _ask_hub(spec: str) -> None:
    """Fail at once if the hub does not have a model; a download would keep retrying."""
    try:
        model_info(spec, timeout=10)
    except HfHubHTTPError as error:
        raise OSError(f"The hub said: {str(error).strip()}.") from error
    except Exception as error:  # anything the hub's client raises, including network errors
        raise OSError(f"The hub cannot be reached: {str(error).strip()}.") from error
