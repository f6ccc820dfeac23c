"""Reading a network and its tokenizer from a folder, with transformers."""

from __future__ import annotations

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

from relquery.errors import ModelError
from relquery.model.formats.config import read_object
from relquery.model.hub import ENCODER, MODEL, Kind

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_UNREAD = "pooler."  # of an encoder; we pool its states ourselves
_OF_A_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.\d+\.")


def read_tokenizer(folder: Path, name: str, kind: Kind = MODEL) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder. name: of the model, for messages. Raises ModelError."""
    _check_json(folder / "config.json")
    none = ModelError(
        f"The {kind.noun} folder {folder} has no tokenizer that can be read. Write one to it with "
        "AutoTokenizer.from_pretrained(...).save_pretrained(folder), or pass tokenizer=."
    )
    try:
        tokenizer = cast(PreTrainedTokenizerBase, _read(AutoTokenizer, folder, name, kind))
    except ModelError as error:
        if any((folder / each).exists() for each in _TOKENIZERS):
            raise
        raise none from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # made up, as no file was found
        raise none
    return tokenizer


def read_network(folder: Path, name: str, dtype: torch.dtype) -> PreTrainedModel:
    """The network of a folder, all of whose weights are there. Raises ModelError."""
    _check_json(folder / "generation_config.json")
    return _whole_network(AutoModelForCausalLM, folder, name, dtype, MODEL)


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


def read_encoder(folder: Path, name: str) -> PreTrainedModel:
    """The network of an encoder, without a head, in float32. Raises ModelError.

    Of a network with encoder and decoder, such as T5, the encoder.
    """
    _check_json(folder / "config.json")
    config = cast(PreTrainedConfig, _read(AutoConfig, folder, name, ENCODER))
    has_form = type(config) in AutoModelForTextEncoding._model_mapping  # without a decoder, if any
    if config.is_encoder_decoder and not has_form:
        raise ModelError(
            f"Encoder '{name}' has a decoder behind it, and {config.model_type} has no form "
            f"without it. Give {ENCODER.known}."
        )
    loader = AutoModelForTextEncoding if has_form else AutoModel
    return _whole_network(loader, folder, name, torch.float32, ENCODER)


def _whole_network(
    loader: Any, folder: Path, name: str, dtype: torch.dtype, kind: Kind
) -> PreTrainedModel:
    _check_json(folder / "config.json")
    try:
        with _quietly():
            options = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True}
            network, loading = _read(loader, folder, name, kind, **options)
    except SafetensorError as error:
        raise ModelError(
            f"The weights of model '{name}' cannot be read: {error}. A file may be cut short; "
            "download it again."
        ) from error
    except RuntimeError as error:
        raise ModelError(
            f"The weights of model '{name}' do not have the sizes that its config.json says. "
            "Use the config.json that belongs to them."
        ) from error
    missing = sorted(name for name in loading["missing_keys"] if not name.startswith(_UNREAD))
    if missing:  # they would be random numbers
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            f"Model '{name}' lacks weights that its network has: {', '.join(missing[:3])}{more}. "
            f"Download it again, or give {kind.what}."
        )
    left_out = "decoder." if loader is AutoModelForTextEncoding else ()
    unused = sorted(
        each
        for each in loading["unexpected_keys"]
        if _OF_A_LAYER.search(each) and not each.startswith(left_out)
    )
    if unused:
        raise ModelError(
            f"Model '{name}' has weights that its network has no place for, such as {unused[0]}. "
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
    end = read_object(file).get("eos_token_id")
    ids = end if isinstance(end, list) else [end]
    if not all(token is None or (type(token) is int and token >= 0) for token in ids):
        raise ModelError(
            f"{file}: eos_token_id is {end!r}; it must be a token id, or a list of them."
        )


def _read(loader: Any, folder: Path, name: str, kind: Kind, **options: Any) -> Any:
    """What a loader of transformers makes of a folder."""
    try:
        return loader.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True, **options
        )
    except (SafetensorError, RuntimeError):
        raise  # of the weights
    except Exception as error:  # a configuration may make the library fail in any way
        why = " ".join((str(error).strip().splitlines() or [type(error).__name__])[:2])
        if isinstance(error, OSError):
            why = f"is not a folder of {kind.what}: {why} Give {kind.known}."
        else:
            why = f"cannot be loaded: {why}"
        raise ModelError(f"{kind.noun.title()} '{name}' {why}") from error
