"""An embedder whose vectors are known: counts of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Float32s
from relquery.retrieval.embedder import Embedder


@dataclass(slots=True)
class Letters(Embedder):
    """Counts the letters a to z. asked: the texts that were embedded."""

    version: str = "1"
    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"letters {self.version}"

    def embed(self, texts: Sequence[str]) -> Float32s:
        self.asked += texts
        counts = [[text.count(chr(97 + at)) for at in range(26)] for text in texts]
        return np.array(counts, np.float32)
