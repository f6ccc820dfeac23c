"""Vectors of texts by an encoder: its last hidden states, pooled over the tokens of each text."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from relquery.arrays import Float32s
from relquery.errors import (
    ConfigError,
    MissingExtraError,
    ModelError,
    RequestError,
    UnsupportedNetworkError,
    not_embedded,
    unknown,
)
from relquery.model.formats.config import read_json, read_object
from relquery.model.hub import ENCODER, find_folder
from relquery.model.load import has_gpu
from relquery.model.native_encoder import NativeEncoder
from relquery.model.text.tokenizer import FILE, Tokenizer

_LOG = logging.getLogger(__name__)
Pooling = Literal["mean", "cls", "last"]
POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last")
_FLAGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_MODES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_NETWORK, _POOLING = "Transformer", "Pooling"
_KNOWN = (_NETWORK, _POOLING, "Normalize")  # vectors get length 1 anyway


class EncoderNetwork(Protocol):
    """A network that computes the last hidden states of texts."""

    tokenizer: Tokenizer
    dimensions: int
    vocabulary: int
    """Token ids that it reads are below it."""
    tokens_at_once: int
    """As many are given to it together, with padding."""

    @property
    def context(self) -> int:
        """Tokens of a text at most."""

    def states(self, texts: Sequence[Sequence[int]]) -> list[Float32s]:
        """(tokens, dimensions) of each text, none of which is empty."""

    def fingerprint(self, read: Sequence[object]) -> str:
        """Changes with whatever changes the states. read: what else changes vectors."""


@dataclass(frozen=True, slots=True)
class EncoderFolder:
    """Settings of an encoder's vectors, in the files of sentence-transformers."""

    network: str
    """The folder of the network."""
    pooling: Pooling
    longest: int | None
    """Tokens that are read of a text; None for as many as the network can."""
    in_lower_case: bool
    prompt: str
    """What each text begins with."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A network and how its states become vectors.

    layout: its pooling is "mean" of all tokens, "cls" for the first one, or "last". context: tokens
    that are read of a text; the rest is cut off.
    """

    network: EncoderNetwork
    layout: EncoderFolder
    context: int

    @classmethod
    def load(cls, spec: str, pooling: str | None = None, device: str | None = None) -> Encoder:
        """Load a folder or a Hugging Face name.

        pooling: None for what the folder says, as sentence-transformers writes it, else "mean".
        On a CPU relquery's own runtime computes, or torch for families that it does not know.
        Raises ModelError, ConfigError for another pooling, and MissingExtraError where torch is
        needed and not installed.
        """
        wanted = next((known for known in POOLINGS if known == pooling), None)
        if pooling is not None and wanted is None:
            raise ConfigError(unknown("pooling", pooling, POOLINGS))
        layout = read_layout(spec, wanted)
        network = _open(find_folder(layout.network, ENCODER), spec, device)
        tokenizer = network.tokenizer
        limits = network.context, tokenizer.longest, layout.longest
        context = min(each for each in limits if each)
        tokenizer.backend.encode_special_tokens = False  # a text may name them
        tokenizer.backend.enable_truncation(context, direction=tokenizer.cut_side)
        return cls(network, layout, context)

    def fingerprint(self) -> str:
        """Changes with whatever changes the vectors."""
        layout = self.layout
        side = self.network.tokenizer.cut_side
        read = [layout.pooling, layout.in_lower_case, layout.prompt, self.context, side]
        return self.network.fingerprint(read)

    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions); 0 for a text without a token.

        Raises RequestError for a text with a token that the network has no embedding for.
        """
        backend, known = self.network.tokenizer.backend, self.network.vocabulary
        encodings = backend.encode_batch([self._given(text) for text in texts])
        tokens = [each.ids for each in encodings]
        most = max((max(each, default=0) for each in tokens), default=0)
        if most >= known:
            raise RequestError(not_embedded("text", most, str(backend.id_to_token(most)), known))
        vectors = np.zeros((len(texts), self.network.dimensions), np.float32)
        for batch in _batches([len(each) for each in tokens], self.network.tokens_at_once):
            states = self.network.states([tokens[row] for row in batch])
            vectors[batch] = [self._pooled(each) for each in states]
        return vectors

    def count(self, texts: Sequence[str]) -> list[tuple[int, bool]]:
        """The tokens that are read of each text, and whether more of it is cut off."""
        encodings = self.network.tokenizer.backend.encode_batch(
            [self._given(text) for text in texts]
        )
        return [(len(each.ids), bool(each.overflowing)) for each in encodings]

    def _given(self, text: str) -> str:
        text = self.layout.prompt + text
        return text.lower() if self.layout.in_lower_case else text

    def _pooled(self, states: Float32s) -> Float32s:
        whole = self.layout.pooling == "mean"
        pooled: Float32s = (
            states.mean(axis=0) if whole else states[0 if self.layout.pooling == "cls" else -1]
        )
        return pooled


def _open(folder: Path, name: str, device: str | None) -> EncoderNetwork:
    """In the native runtime, or with torch."""
    is_here = device == "cpu" or (device is None and not has_gpu())
    if is_here and ((folder / FILE).is_file() or find_spec("torch") is None):
        try:
            return NativeEncoder(folder, name)
        except UnsupportedNetworkError as refused:
            if find_spec("torch") is None:
                raise
            _LOG.info("%s", refused)
    try:
        from relquery.model.torch_runtime.encoder import TorchEncoder
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"Running the encoder '{name}' on '{device}'", "torch") from error
    return TorchEncoder(folder, name, device)


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of texts of similar length, as many as fit with padding; none of texts of length 0.

    most: tokens at once.
    """
    places: list[int] = []
    for row in sorted(np.flatnonzero(lengths).tolist(), key=lengths.__getitem__):
        if places and lengths[row] * (len(places) + 1) > most:
            yield places
            places = []
        places.append(row)
    if places:
        yield places


def read_layout(spec: str, pooling: Pooling | None) -> EncoderFolder:
    """The layout of a folder or a Hugging Face name; the default if it has no such files.

    pooling: in place of what the files say. Raises ModelError for what we do not compute, such as a
    layer behind the pooling.
    """
    folder = Path(spec) if Path(spec).is_dir() else find_folder(spec, ENCODER)
    modules = _modules(spec, folder)
    network = modules.get(_NETWORK, "")
    if network and not Path(spec).is_dir():
        raise ModelError(
            f"The network of the encoder '{spec}' lies in its folder {network}. Download it, and "
            "give the local folder."
        )
    reading = read_object(folder / network / "sentence_bert_config.json")
    prompts = read_object(folder / "config_sentence_transformers.json")
    prompt = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name")) or ""
    said = read_object(folder / modules.get(_POOLING, "1_Pooling") / "config.json")
    if prompt and not said.get("include_prompt", True):
        raise ModelError(
            f"The encoder '{spec}' puts {prompt!r} before each text and leaves it out when it "
            "pools. That is not supported: set default_prompt_name in its "
            "config_sentence_transformers.json to null, or use another encoder."
        )
    return EncoderFolder(
        str(folder / network),
        pooling or (_pooling(spec, said) if said else "mean"),
        reading.get("max_seq_length"),
        bool(reading.get("do_lower_case")),
        prompt,
    )


def _modules(spec: str, folder: Path) -> dict[str, str]:
    """Folders of the parts of an encoder, by kind, from its modules.json."""
    file = folder / "modules.json"
    if not file.is_file():
        return {}
    try:
        paths = {module["type"].rpartition(".")[2]: module["path"] for module in read_json(file)}
    except (TypeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"modules.json of the encoder '{spec}' does not list modules with their types. "
            "Download it again."
        ) from error
    unknown = [kind for kind in paths if kind not in _KNOWN]
    if unknown:
        raise ModelError(
            f"The encoder '{spec}' has a module of the kind {unknown[0]}, which is not supported. "
            f"Supported: {', '.join(_KNOWN)}. Use another encoder, or an Embedder of your own."
        )
    return paths


def _pooling(spec: str, said: Mapping[str, Any]) -> Pooling:
    """How to pool, from the configuration of the pooling, old or new."""
    mode = said.get("pooling_mode")
    wanted: Sequence[str] = [mode] if isinstance(mode, str) else mode or ()
    wanted = wanted or [name for name, on in said.items() if on and name.startswith("pooling_mode")]
    modes = [(_FLAGS | _MODES).get(name) for name in wanted]
    if len(modes) != 1 or modes[0] is None:
        raise ModelError(
            f"The encoder '{spec}' asks for the pooling {' + '.join(wanted) or 'none'}. Supported "
            f"is one of {', '.join(POOLINGS)}. Choose one, e.g. with "
            "rq.load_embedder(..., pooling='mean')."
        )
    return modes[0]
