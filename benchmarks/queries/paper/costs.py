"""What a token costs, as measured on the engine, and what tokens alone would let an order gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


class Costs(NamedTuple):
    """Seconds of a prompt token and of an answer token, each in a step that is full of them."""

    prompt: float
    decoded: float

    @classmethod
    def of(cls, cost: LinearCost, config: EngineConfig) -> Costs:
        """By the linear cost model. Attending to cached tokens counts as nothing."""
        tokens, requests = config.max_num_batched_tokens, config.max_num_seqs
        return cls(cost.seconds(tokens, 0) / tokens, cost.seconds(0, requests) / requests)

    def seconds(self, computed: int, decoded: int) -> float:
        """Of so many prompt tokens that are computed, and answer tokens."""
        return self.prompt * computed + self.decoded * decoded


def calibrate(model: ServedModel, seed: int) -> Costs:
    """Measure them on the engine, as `relquery calibrate` does."""
    config = EngineConfig()
    backend = EmbeddedBackend(model, config)
    try:
        return Costs.of(backend.calibrate(seed=seed).cost, config)
    finally:
        backend.close()
