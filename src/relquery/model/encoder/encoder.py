"""Vectors of texts by an encoder: its last hidden states, pooled over the tokens of each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from relquery.arrays import Float32s
from relquery.errors import ConfigError, ModelError, RequestError, not_embedded, unknown
from relquery.model.encoder.layout import POOLINGS, Layout, read_layout
from relquery.model.hub import ENCODER
from relquery.model.text.tokenizer import as_tokenizer
from relquery.model.torch_runtime.fingerprint import fingerprint
from relquery.model.torch_runtime.read import read_config, read_encoder, read_tokenizer

_TOKENS_AT_ONCE = 8192
_NO_LIMIT = 1_000_000  # tokens; tokenizers without a limit say more


@dataclass(frozen=True, slots=True)
class Encoder:
    """A network and its tokenizer. context: tokens that it reads of a text; the rest is cut off.

    layout: how its states become vectors; its pooling is "mean" of all tokens, "cls" for the first
    one, or "last".
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    layout: Layout
    context: int

    @classmethod
    def load(cls, spec: str, pooling: str | None = None, device: str | None = None) -> Encoder:
        """Load a folder or a Hugging Face name.

        pooling: None for what the folder says, as sentence-transformers writes it, else "mean".
        Raises ModelError, and ConfigError for another pooling.
        """
        wanted = next((one for one in POOLINGS if one == pooling), None)
        if pooling is not None and wanted is None:
            raise ConfigError(unknown("pooling", pooling, POOLINGS))
        if not Path(spec).is_dir():
            read_config(spec, ENCODER)  # raises if the model does not exist
        layout = read_layout(spec, wanted)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        network = read_encoder(layout.network).to(device).eval()  # type: ignore[arg-type]
        tokenizer = read_tokenizer(layout.network, ENCODER)
        if tokenizer.pad_token is None:
            if tokenizer.eos_token is None:
                raise ModelError(f"The tokenizer of '{spec}' has no token for padding. Set one.")
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"
        return cls(network, tokenizer, layout, _context(network, tokenizer, layout))

    def fingerprint(self) -> str:
        """Changes with whatever changes the vectors."""
        layout = self.layout
        read = [layout.pooling, layout.in_lower_case, layout.prompt, self.context]
        return fingerprint(self.network, as_tokenizer(self.tokenizer), read)

    def embed(self, texts: Sequence[str]) -> Float32s:
        """(texts, dimensions); 0 for a text without a token.

        Raises RequestError for a text with a token that the network has no embedding for.
        """
        vectors = np.zeros((len(texts), self.network.config.hidden_size), np.float32)
        given = [self._given(text) for text in texts]
        for batch in _batches(self._lengths(given)):
            vectors[batch] = self._pooled([given[at] for at in batch])
        return vectors

    def _given(self, text: str) -> str:
        text = self.layout.prompt + text
        return text.lower() if self.layout.in_lower_case else text

    def _lengths(self, texts: list[str]) -> list[int]:
        return [len(each) for each in self._tokens(texts)["input_ids"]] if texts else []

    def _tokens(self, texts: list[str], **options: Any) -> Any:
        return self.tokenizer(texts, truncation=True, max_length=self.context, **options)

    @torch.inference_mode()
    def _pooled(self, texts: list[str]) -> Float32s:
        given = self._tokens(texts, padding=True, return_tensors="pt")
        embedding: Any = self.network.get_input_embeddings()
        most, known = int(given["input_ids"].max()), len(embedding.weight)
        if most >= known:
            word = str(self.tokenizer.decode([most]))
            raise RequestError(not_embedded("text", most, word, known))
        given = given.to(self.network.device)
        states = self.network(**given).last_hidden_state.float()
        mask = given["attention_mask"]
        if self.layout.pooling == "cls":
            pooled = states[:, 0]
        elif self.layout.pooling == "last":
            pooled = states[torch.arange(len(states)), mask.sum(dim=1) - 1]
        else:
            pooled = (states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        vectors: Float32s = pooled.cpu().numpy()
        return vectors


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts of similar length, as many as fit with padding; none of texts of length 0."""
    places: list[int] = []
    for at in sorted(np.flatnonzero(lengths).tolist(), key=lengths.__getitem__):
        if places and lengths[at] * (len(places) + 1) > _TOKENS_AT_ONCE:
            yield places
            places = []
        places.append(at)
    if places:
        yield places


def _context(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, layout: Layout) -> int:
    """Tokens that are read of a text: what the network, its tokenizer and its folder allow."""
    positions = getattr(network.config, "max_position_embeddings", None) or _NO_LIMIT
    for name, module in network.named_modules():
        is_table = name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding)
        if is_table and module.padding_idx is not None:
            positions -= module.padding_idx + 1  # rows that are no positions, as in RoBERTa
    limits = (positions, tokenizer.model_max_length, layout.longest or _NO_LIMIT)
    return int(min(limits))
