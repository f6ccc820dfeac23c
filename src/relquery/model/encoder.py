"""Vectors of texts by an encoder: its last hidden states, pooled over the tokens of each text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from relquery.arrays import Float32s
from relquery.errors import ConfigError, ModelError, unknown
from relquery.model.networks.fingerprint import digest
from relquery.model.networks.read import ENCODER, read_encoder, read_tokenizer

Pooling = Literal["mean", "cls"]
POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
_TOKENS_AT_ONCE = 8192
_NO_LIMIT = 1_000_000  # tokens; tokenizers without a limit say more
_OF_SENTENCE_TRANSFORMERS = Path("1_Pooling") / "config.json"


@dataclass(frozen=True, slots=True)
class Encoder:
    """A network and its tokenizer. context: tokens that it reads of a text; the rest is cut off.

    pooling: "mean" of all tokens, or "cls" for the first one.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: Pooling
    context: int

    @classmethod
    def load(cls, spec: str, pooling: str | None = None, device: str | None = None) -> Encoder:
        """Load a folder or a Hugging Face name.

        pooling: None for what the folder says, as sentence-transformers writes it, else "mean".
        Raises ModelError, and ConfigError for another pooling.
        """
        if pooling is not None and pooling not in POOLINGS:
            raise ConfigError(unknown("pooling", pooling, POOLINGS))
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        network = read_encoder(spec).to(device).eval()  # type: ignore[arg-type]
        tokenizer = read_tokenizer(spec, ENCODER)
        if tokenizer.pad_token is None:
            if tokenizer.eos_token is None:
                raise ModelError(f"The tokenizer of '{spec}' has no token for padding. Set one.")
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"
        found = next(one for one in POOLINGS if one == (pooling or _pooling_of(Path(spec))))
        return cls(network, tokenizer, found, _context(network, tokenizer))

    def fingerprint(self) -> str:
        """Changes with whatever changes the vectors."""
        return digest(self.network, self.tokenizer, [self.pooling, self.context])

    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions)."""
        batches = list(_batches(self._lengths(texts)))
        if not batches:
            return np.zeros((0, 0), np.float32)
        found = np.concatenate([self._pooled([texts[at] for at in one]) for one in batches])
        vectors = np.empty_like(found)
        vectors[np.concatenate(batches)] = found
        return vectors

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        ids = self._tokens(list(texts))["input_ids"]
        return [len(each) for each in ids]

    def _tokens(self, texts: list[str], **options: Any) -> Any:
        return self.tokenizer(texts, truncation=True, max_length=self.context, **options)

    @torch.inference_mode()
    def _pooled(self, texts: list[str]) -> Float32s:
        given = self._tokens(texts, padding=True, return_tensors="pt").to(self.network.device)
        states = self.network(**given).last_hidden_state.float()
        if self.pooling == "cls":
            pooled = states[:, 0]
        else:
            mask = given["attention_mask"].unsqueeze(-1).float()
            pooled = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        vectors: Float32s = pooled.cpu().numpy()
        return vectors


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts of similar length, as many as fit with padding."""
    places: list[int] = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if places and lengths[at] * (len(places) + 1) > _TOKENS_AT_ONCE:
            yield places
            places = []
        places.append(at)
    if places:
        yield places


def _context(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    positions = getattr(network.config, "max_position_embeddings", None) or _NO_LIMIT
    return int(min(tokenizer.model_max_length, positions))


def _pooling_of(folder: Path) -> str:
    """What a folder of sentence-transformers says; else "mean". Raises ModelError for others."""
    file = folder / _OF_SENTENCE_TRANSFORMERS
    if not file.is_file():
        return "mean"
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        modes = [name for name, value in said.items() if name.startswith("pooling_mode_") and value]
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{file} cannot be read: {error}. Download it again.") from error
    known = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    if len(modes) != 1 or modes[0] not in known:
        raise ModelError(
            f"{file} asks for {', '.join(modes) or 'no pooling'}. Supported: "
            f"{', '.join(known)}. Choose one with pooling='mean' or pooling='cls'."
        )
    return known[modes[0]]
