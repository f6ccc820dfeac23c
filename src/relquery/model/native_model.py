"""A model on a CPU: weights in the native runtime, and a tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relquery import native
from relquery._native import Network
from relquery.config import EngineConfig
from relquery.engine.executor import NOT_FINITE, SCRATCH, Chunk
from relquery.engine.requests.pieces import Adapter
from relquery.engine.requests.request import Draw
from relquery.errors import ModelError
from relquery.model.footprint import Footprint
from relquery.model.formats.adapter import Lora
from relquery.model.formats.coded import CodedWeights
from relquery.model.formats.config import COPIED, ConfigReader, read_object, read_settings
from relquery.model.formats.gguf import read_gguf
from relquery.model.formats.gguf_network import read_network
from relquery.model.formats.quantization import read_coding
from relquery.model.formats.safetensors import Weights, read_weights
from relquery.model.native_runtime import INT8, NativeExecutor, cores
from relquery.model.networks.decoder import Decoder, DecoderBuilder
from relquery.model.networks.families import read_decoder
from relquery.model.networks.random import RandomSpec, RandomWeights
from relquery.model.text.gguf_tokenizer import read_gguf_tokenizer
from relquery.model.text.tokenizer import Tokenizer

KINDS = {"float32": 0, "bfloat16": 1}
INT8_PRODUCTS = "int8"
"""The dtype of products in int8; other numbers are bfloat16 where that is fast, else float32."""
Report = Callable[[float], None]
_ENDS_OF_TURNS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>")


@dataclass(frozen=True, slots=True)
class NativeModel:
    """See ServedModel. kind, cached: of the network's numbers, and of its states, as kernels know
    them."""

    name: str
    decoder: Decoder
    kind: int
    tokenizer: Tokenizer
    end: frozenset[int]
    version: str
    adapters: Mapping[str, Adapter]
    _network: Network
    _weights: Weights
    _told: str
    cached: int

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
        """Of what it computes."""
        return next(name for name, kind in KINDS.items() if kind == self.kind)

    @property
    def runs_in(self) -> str:
        """The forward pass that runs, for people."""
        return "relquery's runtime"

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

    def fingerprint(self) -> str:
        """By all of its weights, wherever they lie."""
        whole = hashlib.sha256(repr((self._told, sorted(self.end), self.dtype)).encode())
        whole.update(self.tokenizer.digest() + self._weights.digest())
        return f"sha256:{whole.hexdigest()}"

    def executor(
        self, config: EngineConfig, slots: int, since: Callable[[], float]
    ) -> NativeExecutor:
        """A new executor."""
        del since
        return self._executor(
            slots,
            share=config.segment_sharing,
            slice_tokens=config.slice_tokens,
        )

    def named(self, name: str) -> NativeModel:
        """The same under another name."""
        return replace(self, name=name)

    def with_cache_in_8_bits(self) -> NativeModel:
        """The same with keys and values in 8 bits; its answers are others."""
        told = f"{self._told} with keys and values in 8 bits"
        version = hashlib.blake2b(f"{self.version} {told}".encode(), digest_size=4).hexdigest()
        return replace(self, cached=INT8, version=version, _told=told)

    def footprint(self) -> Footprint:
        """How much memory it takes."""

        def peak(chunks: list[Chunk], slice_tokens: int) -> int:
            return self._executor(0, slice_tokens=slice_tokens).bytes_of(chunks)

        return Footprint(
            weights=self._network.weight_bytes,
            cached_token=self._executor(0).slot_bytes,
            hidden_token=self.decoder.hidden * (4 if self.kind == 0 else 2),
            context=self.context,
            vocabulary=self.vocabulary,
            peak=peak,
        )

    def forget(self) -> None:
        """Give back the memory that steps have left; the next one takes it again."""
        self._network.forget()

    def close(self) -> None:
        """Give back the memory of the weights."""
        self._network.close()

    def _executor(self, slots: int, **settings: Any) -> NativeExecutor:
        """An executor with so many slots. settings: its others."""
        return NativeExecutor(
            self._network,
            self.decoder,
            self.kind,
            slots,
            adapters=len(self.adapters),
            cached=self.cached,
            check=self._weights.check,
            **settings,
        )


def open_folder(
    folder: Path,
    name: str,
    dtype: str,
    tokenizer: Tokenizer,
    report: Report = lambda share: None,
    bits: int = 0,
    loras: Sequence[Lora] = (),
) -> NativeModel:
    """The model of a folder. bits: to which weights are rounded; see NetworkBuilder. loras: its
    adapters.

    Raises ModelError, and UnsupportedNetworkError for a network that is not one of ours.
    """
    settings = read_settings(folder, name)
    coding, decoder = read_coding(settings), read_decoder(settings)
    if coding is not None and bits:
        raise ModelError(
            f"The weights of model '{name}' are in few bits already. Leave quantize out."
        )
    ends = _end_tokens(folder, settings, tokenizer, decoder.vocabulary)
    weights = read_weights(folder) if coding is None else CodedWeights(folder, coding)
    return _open(name, settings, decoder, weights, dtype, tokenizer, ends, report, bits, loras)


def open_gguf(
    path: Path,
    name: str,
    dtype: str,
    given: Tokenizer | None = None,
    report: Report = lambda share: None,
    loras: Sequence[Lora] = (),
) -> NativeModel:
    """The model of a GGUF file, or of the first of several. given: replaces its tokenizer. loras:
    its adapters. Raises ModelError, and UnsupportedNetworkError for what is not one of ours."""
    file = read_gguf(path)
    settings, weights = read_network(file, name)
    decoder = read_decoder(settings)
    tokenizer = given or read_gguf_tokenizer(file.metadata, name)
    ends = _gguf_ends(file.metadata, tokenizer, decoder.vocabulary)
    return _open(name, settings, decoder, weights, dtype, tokenizer, ends, report, loras=loras)


def open_random(
    spec: str, dtype: str, tokenizer: Tokenizer, bits: int = 0, loras: Sequence[Lora] = ()
) -> NativeModel:
    """A network with random weights; see RandomSpec. Raises ModelError."""
    read, vocabulary = RandomSpec.parse(spec), len(tokenizer)
    settings = ConfigReader(spec, read.config(vocabulary))
    weights, end = RandomWeights(read, vocabulary), tokenizer.id_of("eos_token")
    ends = frozenset(() if end is None else (end,))
    decoder = read_decoder(settings)
    return _open(
        spec, settings, decoder, weights, dtype, tokenizer, ends, lambda share: None, bits, loras
    )


def _open(
    name: str,
    settings: ConfigReader,
    decoder: Decoder,
    weights: Weights,
    dtype: str,
    tokenizer: Tokenizer,
    end: frozenset[int],
    report: Report,
    bits: int = 0,
    loras: Sequence[Lora] = (),
) -> NativeModel:
    in_int8 = dtype == INT8_PRODUCTS
    beside = "bfloat16" if native.has_pairs() else "float32"
    kind = KINDS.get(beside if in_int8 else dtype)
    if kind is None:
        raise settings.refused(f"it would compute in {dtype}; this one does in {', '.join(KINDS)}")
    try:
        network = DecoderBuilder(
            decoder, weights, kind, cores(), report, bits, in_int8, loras
        ).build()
    except (ValueError, IndexError) as error:
        raise ModelError(
            f"The weights of model '{name}' do not have the sizes that its {settings.file} says: "
            f"{str(error).rstrip('.')}. Use the {settings.file} that belongs to them."
        ) from error
    if left := [each for each in weights.unread if not each.endswith(".inv_freq")]:
        raise ModelError(
            f"Model '{name}' has weights that its network has no place for, such as {left[0]}. "
            f"Use the {settings.file} that belongs to them."
        )
    if in_int8 and not network.has_few_bits:
        remedy = "Add quantize='int8' or 'int4', or give a GGUF file in few bits."
        if isinstance(weights, CodedWeights):
            remedy = "Its groups are not of 32 inputs in a row, so it has floats. Leave dtype out."
        elif settings.file != "config.json":
            remedy = "Leave dtype out, or give a GGUF file in few bits."
        raise ModelError(
            f"Model '{name}' has no weights in 4 or 8 bits, which dtype='int8' multiplies. {remedy}"
        )
    kept = {key: settings[key] for key in settings if key not in COPIED}
    kept |= {"bits": bits} if bits else {}
    kept |= {"products": INT8_PRODUCTS} if in_int8 else {}
    told = json.dumps(kept, sort_keys=True, default=str)
    version = hashlib.blake2b(told.encode() + tokenizer.digest(), digest_size=4)
    version.update(weights.beginnings())
    weights.release()
    adapters = {each.name: Adapter(number, each.key) for number, each in enumerate(loras, 1)}
    model = NativeModel(
        name,
        decoder,
        kind,
        tokenizer,
        end,
        version.hexdigest(),
        adapters,
        network,
        weights,
        told,
        kind,
    )
    _check_finite(model)
    return model


def _check_finite(model: NativeModel) -> None:
    """Raise ModelError unless all logits of a token are finite numbers, with each adapter, too."""
    executor = model._executor(0)
    every = Draw(logprobs=0)  # which reads all of them
    plain = Chunk(0, np.zeros(1, dtype=np.int32), 0, (), np.array([SCRATCH]), every)
    named = {f"Adapter '{name}'": adapter.number for name, adapter in model.adapters.items()}
    for what, number in {f"Model '{model.name}'": 0, **named}.items():
        if executor.execute([plain._replace(adapter=number)]) == [NOT_FINITE]:
            remedy = "Download" if model.kind == 0 else "Try dtype='float32', or download"
            raise ModelError(
                f"{what} computes no finite numbers: its weights are damaged, or exceed "
                f"the range of {model.dtype}. {remedy} it again."
            )


def _end_tokens(
    folder: Path, settings: ConfigReader, tokenizer: Tokenizer, vocabulary: int
) -> frozenset[int]:
    """Tokens that end an answer. One that the network has no embedding for is never drawn."""
    told = read_object(folder / "generation_config.json")
    end = told.get("eos_token_id", settings.get("eos_token_id"))
    listed = end if isinstance(end, list) else [end]
    if not all(each is None or (type(each) is int and each >= 0) for each in listed):
        raise ModelError(
            f"Model '{settings.name}': eos_token_id is {end!r}; it must be a token id, or a list "
            "of them."
        )
    ids = [*listed, tokenizer.id_of("eos_token")]
    return frozenset(each for each in ids if each is not None and each < vocabulary)


def _gguf_ends(
    metadata: Mapping[str, Any], tokenizer: Tokenizer, vocabulary: int
) -> frozenset[int]:
    """Tokens that end an answer: those that a file names, and ends of turns among its special ones,
    which few files name."""
    named = [metadata.get(f"tokenizer.ggml.{each}_token_id") for each in ("eos", "eot", "eom")]
    turns = [tokenizer.special_ids.get(each) for each in _ENDS_OF_TURNS]
    return frozenset(
        each for each in [*named, *turns] if type(each) is int and 0 <= each < vocabulary
    )
