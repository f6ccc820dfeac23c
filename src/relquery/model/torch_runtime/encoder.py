"""An encoder that transformers computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from relquery.arrays import Float32s
from relquery.model.hub import ENCODER
from relquery.model.text.tokenizer import Tokenizer, as_tokenizer
from relquery.model.torch_runtime.load import fingerprint
from relquery.model.torch_runtime.read import read_encoder, read_tokenizer

_NO_LIMIT = 1_000_000  # tokens


class TorchEncoder:
    """See EncoderNetwork. folder: of the network. name: of the encoder, for messages. device: None
    for CUDA if there is one."""

    tokens_at_once = 8192

    def __init__(self, folder: Path, name: str, device: str | None) -> None:
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._network: Any = read_encoder(folder, name).to(device).eval()  # type: ignore[arg-type]
        self.tokenizer: Tokenizer = as_tokenizer(read_tokenizer(folder, name, ENCODER))
        self.dimensions = int(self._network.config.hidden_size)
        self.vocabulary = len(self._network.get_input_embeddings().weight)

    @property
    def context(self) -> int:
        """Tokens of a text at most."""
        positions = getattr(self._network.config, "max_position_embeddings", None) or _NO_LIMIT
        for name, module in self._network.named_modules():
            is_table = name.endswith("position_embeddings") and isinstance(
                module, torch.nn.Embedding
            )
            if is_table and module.padding_idx is not None:
                positions -= module.padding_idx + 1  # rows that are no positions, as in RoBERTa
        return int(positions)

    def fingerprint(self, read: Sequence[object]) -> str:
        """Changes with whatever changes the states."""
        return fingerprint(self._network, self.tokenizer, list(read))

    @torch.inference_mode()
    def states(self, texts: Sequence[Sequence[int]]) -> list[Float32s]:
        """(tokens, dimensions) of each text, none of which is empty."""
        longest, padding = max(map(len, texts)), self.tokenizer.id_of("pad_token") or 0
        ids = torch.tensor([[*each, *[padding] * (longest - len(each))] for each in texts])
        counts = torch.tensor([len(each) for each in texts])
        mask = (torch.arange(longest) < counts[:, None]).long()
        given = (each.to(self._network.device) for each in (ids, mask))
        output = self._network(**dict(zip(("input_ids", "attention_mask"), given, strict=True)))
        states = output.last_hidden_state.float().cpu().numpy()
        return [rows[: len(each)] for rows, each in zip(states, texts, strict=True)]
