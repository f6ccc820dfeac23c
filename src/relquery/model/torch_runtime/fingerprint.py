"""A digest of everything that determines a model's answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import PreTrainedModel

from relquery.model.text.tokenizer import Tokenizer

_PIECE_BYTES = 16 * 2**20  # of a weight that one thread hashes at a time
# Fields that say where and by what the configuration was loaded; the weights have the dtype.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")


def fingerprint(network: PreTrainedModel, tokenizer: Tokenizer, settings: list[Any]) -> str:
    """A SHA-256 in hexadecimal of weights, configuration, tokenizer and chat template.

    Every byte of the weights counts, as in memory. So different dtypes have different digests, and
    a copy elsewhere has the same one. Takes about one core-second per gigabyte, on all cores.
    settings: what else determines the answers.
    """
    whole = hashlib.sha256()
    whole.update(repr((_config(network), settings)).encode())
    whole.update(tokenizer.digest())
    with ThreadPoolExecutor() as pool:  # hashing large pieces lets other threads run
        for hashed in pool.map(_hash, _pieces(network)):
            whole.update(hashed)
    return whole.hexdigest()


def _config(network: PreTrainedModel) -> str:
    config = network.config.to_dict()
    kept = {name: value for name, value in config.items() if name not in _INCIDENTAL}
    return json.dumps(kept, sort_keys=True, default=str)


def _pieces(network: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """(description, bytes), large weights in pieces; weights with several names occur once."""
    seen: dict[tuple[int, torch.Size], str] = {}
    for name, weight in sorted(network.state_dict().items()):
        place = weight.data_ptr(), weight.shape
        if weight.numel() and place in seen:
            yield f"{name} is {seen[place]}", torch.empty(0, dtype=torch.uint8)
            continue
        seen[place] = name
        data = weight.detach().contiguous().flatten().view(torch.uint8)
        for at in range(0, len(data), _PIECE_BYTES):
            what = f"{name} {weight.dtype} {tuple(weight.shape)} {at}"
            yield what, data[at : at + _PIECE_BYTES]


def _hash(piece: tuple[str, torch.Tensor]) -> bytes:
    what, data = piece
    hashed = hashlib.sha256(what.encode() + b"\0")
    hashed.update(data.cpu().numpy().data)
    return hashed.digest()
