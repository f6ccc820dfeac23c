"""A digest of everything that determines a model's answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from relquery.model.forward.linear import PackedLinear

_PIECE_BYTES = 16 * 2**20  # of a weight that one thread hashes at a time
# Fields that say where and by what the configuration was loaded; the weights have the dtype.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
_PASSING = ("truncation", "padding")  # tokenizer settings that each call changes


class Fingerprinted(Protocol):
    """What a fingerprint is taken of."""

    @property
    def network(self) -> PreTrainedModel:
        """See LoadedModel."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """See LoadedModel."""

    @property
    def end(self) -> frozenset[int]:
        """See LoadedModel."""


def fingerprint(model: Fingerprinted) -> str:
    """A SHA-256 in hexadecimal of weights, configuration, tokenizer and chat template.

    Every byte of the weights counts, as in memory. So different dtypes have different digests, and
    a copy elsewhere has the same one. Takes about one core-second per gigabyte, on all cores.
    """
    return digest(model.network, model.tokenizer, sorted(model.end))


def digest(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: list[Any]
) -> str:
    """The same of a network and its tokenizer. settings: what else determines the answers."""
    whole = hashlib.sha256()
    whole.update(repr((_config(network), settings)).encode())
    whole.update(repr(_tokenizer(tokenizer)).encode("utf-8", "surrogatepass"))
    with ThreadPoolExecutor() as pool:  # hashing large pieces lets other threads run
        for hashed in pool.map(_hash, _pieces(network)):
            whole.update(hashed)
    return whole.hexdigest()


def _config(network: PreTrainedModel) -> str:
    config = network.config.to_dict()
    kept = {name: value for name, value in config.items() if name not in _INCIDENTAL}
    return json.dumps(kept, sort_keys=True, default=str)


def _tokenizer(tokenizer: PreTrainedTokenizerBase) -> list[object]:
    """Everything that determines how text becomes tokens and vice versa."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        merging: object = sorted(tokenizer.get_vocab().items())
    else:
        merging = [
            item for item in sorted(json.loads(backend.to_str()).items()) if item[0] not in _PASSING
        ]
    return [
        type(tokenizer).__name__,
        merging,
        tokenizer("x")["input_ids"],
        sorted(tokenizer.special_tokens_map.items()),
        tokenizer.chat_template,
        getattr(tokenizer, "clean_up_tokenization_spaces", None),
    ]


def _pieces(network: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """(description, bytes), large weights in pieces; weights with several names occur once."""
    seen: dict[tuple[int, torch.Size], str] = {}
    weights = dict(_unpacked(network))
    packed = {
        f"{name}.weight": module
        for name, module in network.named_modules()
        if isinstance(module, PackedLinear)
    }
    for name in sorted({*weights, *packed}):
        weight = packed[name].weight if name in packed else weights[name].detach()
        place = (packed[name].place if name in packed else weight.data_ptr(), weight.shape)
        if weight.numel() and place in seen:
            yield f"{name} is {seen[place]}", torch.empty(0, dtype=torch.uint8)
            continue
        seen[place] = name
        data = weight.contiguous().flatten().view(torch.uint8)
        for at in range(0, len(data), _PIECE_BYTES):
            what = f"{name} {weight.dtype} {tuple(weight.shape)} {at}"
            yield what, data[at : at + _PIECE_BYTES]


def _unpacked(network: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """What `state_dict` has, without the packed weights, which it would copy all at once."""
    for prefix, module in network.named_modules(remove_duplicate=False):
        kept = {**module._parameters, **module._buffers}
        for name, tensor in kept.items():
            if tensor is not None and name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, tensor


def _hash(piece: tuple[str, torch.Tensor]) -> bytes:
    what, data = piece
    hashed = hashlib.sha256(what.encode() + b"\0")
    hashed.update(data.cpu().numpy().data)
    return hashed.digest()
