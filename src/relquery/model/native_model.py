"""A model on a CPU: a folder's weights in the native runtime, and its tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from relquery._native import Network
from relquery.config import EngineConfig
from relquery.errors import ModelError
from relquery.model.formats.config import Settings, read_settings
from relquery.model.formats.safetensors import Weights
from relquery.model.native_runtime import NativeExecutor, cores
from relquery.model.networks.decoder import Decoder, DecoderBuilder
from relquery.model.networks.families.families import read_decoder

KINDS = {"float32": 0, "bfloat16": 1}
_PIECE_BYTES = 16 * 2**20  # of a weight that one thread hashes at a time
_FIRST_BYTES = 256  # of each weight, by which versions are told apart


@dataclass(frozen=True, slots=True)
class NativeModel:
    """See ServedModel. kind: of the network's numbers, as kernels know it."""

    name: str
    decoder: Decoder
    kind: int
    tokenizer: PreTrainedTokenizerBase
    end: frozenset[int]
    version: str
    _network: Network
    _weights: Weights
    _settings: Settings

    @property
    def context(self) -> int:
        """Positions that it has, in tokens."""
        return self.decoder.context

    @property
    def vocabulary(self) -> int:
        """Token ids that it reads are below it."""
        return self.decoder.vocabulary

    @property
    def dtype(self) -> str:
        """Of its states."""
        return next(name for name, kind in KINDS.items() if kind == self.kind)

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, for people."""
        return "relquery's native runtime"

    @property
    def is_relocatable(self) -> bool:
        """Whether its keys can be used at other positions."""
        return True

    @property
    def is_simulated(self) -> bool:
        """No."""
        return False

    @property
    def length(self) -> None:
        """The network says where an answer ends."""
        return None

    @property
    def weight_bytes(self) -> int:
        """Of its weights in memory."""
        return self._network.weight_bytes

    def fingerprint(self) -> str:
        """By all of its weights, wherever they lie."""
        whole = hashlib.sha256(repr((_told(self._settings), sorted(self.end), self.dtype)).encode())
        whole.update(tokenizer_digest(self.tokenizer))
        with ThreadPoolExecutor() as pool:  # hashing large pieces lets other threads run
            for hashed in pool.map(_hash, _pieces(self._weights)):
                whole.update(hashed)
        return f"sha256:{whole.hexdigest()}"

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float], *, lean: bool
    ) -> NativeExecutor:
        """See ServedModel."""
        del since, lean
        return NativeExecutor(
            self._network,
            self.decoder,
            self.kind,
            slots,
            share=config.segment_sharing,
            relocation=config.relocation,
            slice_tokens=config.slice_tokens,
            host_slots=config.host_tokens // config.block_size * config.block_size,
        )

    def close(self) -> None:
        """Give back the memory of the weights."""
        self._network.close()


def open_native(
    folder: Path,
    name: str,
    dtype: str,
    tokenizer: PreTrainedTokenizerBase,
    report: Callable[[float], None] = lambda share: None,
) -> NativeModel:
    """The model of a folder. Raises ModelError, also for a network that is not one of ours."""
    settings = read_settings(folder, name)
    decoder = read_decoder(settings)
    kind = KINDS.get(dtype)
    if kind is None:
        raise settings.refused(
            f"it would compute in {dtype}; the engine does in {', '.join(KINDS)}"
        )
    weights = Weights(folder)
    try:
        network = DecoderBuilder(decoder, weights, kind, cores(), report).build()
    except (ValueError, IndexError) as error:
        raise ModelError(
            f"The weights of model '{name}' do not have the sizes that its config.json says: "
            f"{error}. Use the config.json that belongs to them."
        ) from error
    if left := [each for each in weights.unread if not each.endswith(".inv_freq")]:
        raise ModelError(
            f"Model '{name}' has weights that its network has no place for, such as {left[0]}. "
            "Use the config.json that belongs to them."
        )
    return NativeModel(
        name,
        decoder,
        kind,
        tokenizer,
        _end_tokens(folder, settings, tokenizer, decoder.vocabulary),
        _version(settings, weights, tokenizer),
        network,
        weights,
        settings,
    )


def _end_tokens(
    folder: Path, settings: Settings, tokenizer: PreTrainedTokenizerBase, vocabulary: int
) -> frozenset[int]:
    """Tokens that end an answer. One that the network has no embedding for is never drawn."""
    file = folder / "generation_config.json"
    told = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    end = told.get("eos_token_id", settings.get("eos_token_id"))
    listed = end if isinstance(end, list) else [end]
    found = [*listed, tokenizer.eos_token_id]
    return frozenset(each for each in found if isinstance(each, int) and each < vocabulary)


def _told(settings: Settings) -> str:
    return json.dumps({key: settings[key] for key in settings}, sort_keys=True, default=str)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> bytes:
    """Of everything that determines how text becomes tokens and vice versa."""
    backend: Any = tokenizer
    content = (backend.backend_tokenizer.to_str(), str(tokenizer.chat_template))
    return hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).digest()


def _version(settings: Settings, weights: Weights, tokenizer: PreTrainedTokenizerBase) -> str:
    """Eight hex digits that tell models apart; uses only the first bytes of each weight."""
    digest = hashlib.blake2b(digest_size=4)
    digest.update(_told(settings).encode() + tokenizer_digest(tokenizer))
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].bytes[:_FIRST_BYTES].tobytes())
    return digest.hexdigest()


def _pieces(weights: Weights) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """(description, bytes), large weights in pieces."""
    for name in sorted(weights):
        weight = weights[name]
        for at in range(0, len(weight.bytes), _PIECE_BYTES):
            what = f"{name} {weight.kind} {weight.shape} {at}"
            yield what, weight.bytes[at : at + _PIECE_BYTES]


def _hash(piece: tuple[str, npt.NDArray[np.uint8]]) -> bytes:
    what, data = piece
    hashed = hashlib.sha256(what.encode() + b"\0")
    hashed.update(data.data)
    return hashed.digest()
