"""Reading a network and its tokenizer: from a folder, the local cache, or the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from relquery.errors import ModelError, did_you_mean
from relquery.model.hub import ENCODER, MODEL, Kind, ask_hub

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_UNREAD = "pooler."  # of an encoder; we pool its states ourselves
_OF_A_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.\d+\.")


def read_tokenizer(spec: str, kind: Kind = MODEL) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or name. Raises ModelError."""
    file = Path(spec) / "config.json"
    _check_json(file)
    none = ModelError(
        f"The {kind.noun} folder {spec} has no tokenizer that can be read. Write one to it with "
        "AutoTokenizer.from_pretrained(...).save_pretrained(folder), or pass tokenizer=."
    )
    try:
        tokenizer = cast(PreTrainedTokenizerBase, _from_hub(AutoTokenizer, spec, kind))
    except ModelError as error:
        is_there = any((Path(spec) / name).exists() for name in _TOKENIZERS)
        if is_there or not file.exists():
            raise
        raise none from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # made up, as no file was found
        raise none
    return tokenizer


def read_network(spec: str, dtype: torch.dtype) -> PreTrainedModel:
    """The network of a model folder or name, all of whose weights are there. Raises ModelError."""
    _check_json(Path(spec) / "generation_config.json")
    return _whole_network(AutoModelForCausalLM, spec, dtype, MODEL)


def read_gguf_network(file: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The network of a GGUF file, with its numbers as they are. Raises ModelError."""
    try:
        with _quietly():
            network = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=dtype
            )
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"transformers cannot read {file}: {error} It needs `pip install gguf`."
        ) from error
    return cast(PreTrainedModel, network)


def read_config(spec: str, kind: Kind = MODEL) -> PreTrainedConfig:
    """The configuration of a model folder or name. Raises ModelError."""
    _check_json(Path(spec) / "config.json")
    return cast(PreTrainedConfig, _from_hub(AutoConfig, spec, kind))


def read_encoder(spec: str) -> PreTrainedModel:
    """The network of an encoder, without a head, in float32. Raises ModelError.

    Of a network with encoder and decoder, such as T5, the encoder.
    """
    config = read_config(spec, ENCODER)
    has_form = type(config) in AutoModelForTextEncoding._model_mapping  # without a decoder, if any
    if config.is_encoder_decoder and not has_form:
        raise ModelError(
            f"Encoder '{spec}' has a decoder behind it, and {config.model_type} has no form "
            f"without it. Give {ENCODER.known}."
        )
    loader = AutoModelForTextEncoding if has_form else AutoModel
    return _whole_network(loader, spec, torch.float32, ENCODER)


def _whole_network(loader: Any, spec: str, dtype: torch.dtype, kind: Kind) -> PreTrainedModel:
    _check_json(Path(spec) / "config.json")
    try:
        with _quietly():
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
    left_out = "decoder." if loader is AutoModelForTextEncoding else ()
    unused = sorted(
        name
        for name in found["unexpected_keys"]
        if _OF_A_LAYER.search(name) and not name.startswith(left_out)
    )
    if unused:
        raise ModelError(
            f"Model '{spec}' has weights that its network has no place for, such as {unused[0]}. "
            "Use the config.json that belongs to them."
        )
    return cast(PreTrainedModel, network)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the library's progress bars, as the caller shows progress, and without its report of
    weights, which we check.
    """
    library: Any = transformers_logging
    library.disable_progress_bar()
    before = library.get_verbosity()
    library.set_verbosity_error()
    try:
        yield
    finally:
        library.set_verbosity(before)


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
            ask_hub(spec)
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
