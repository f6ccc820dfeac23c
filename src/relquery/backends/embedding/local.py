"""An encoder on this machine, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from relquery.arrays import Float32s
from relquery.retrieval.embedder import Embedder

if TYPE_CHECKING:
    from relquery.model.encoder.encoder import Encoder


class LocalEmbedder(Embedder):
    """A folder or Hugging Face name of an encoder. See Encoder.load."""

    def __init__(self, spec: str, pooling: str | None = None, device: str | None = None) -> None:
        self.spec, self._pooling, self._device = spec, pooling, device

    @cached_property
    def name(self) -> str:
        """See Embedder."""
        return f"encoder {self._encoder.fingerprint()}"

    @property
    def label(self) -> str:
        """See Embedder."""
        return self.spec

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder."""
        return self._encoder.embed(texts)

    @cached_property
    def _encoder(self) -> Encoder:
        from relquery.model.encoder.encoder import Encoder

        return Encoder.load(self.spec, self._pooling, self._device)
