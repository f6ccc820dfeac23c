"""The cost of using a cached span at another position, in three ways (paper 002, Fig. 13a)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Say

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel

QUERIES = 32  # tokens that see the span
DISTANCE = 512  # by which it is moved
LEAST_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """Tokens of a span that are relocated per millisecond, in all layers.

    queries: the 32 tokens that see the span are rotated, in each step that computes them. keys: its
    keys are rotated, in each step that reads them. cidra: its keys are rotated once, and written
    back.
    """

    tokens: int
    queries: float
    keys: float
    cidra: float


def measure(model: LoadedModel, tokens: int, repeats: int, say: Say) -> Moved:
    """Time moving a span of `tokens` tokens."""
    from relquery.model.cache.device import KVCache

    config = model.network.config.get_text_config()
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    like: Any = model.network.get_input_embeddings().weight.data
    rotaries = [rotary for rotary in model.positions.layers if rotary is not None]
    slots = like.new_ones(tokens).long().cumsum(0) - 1
    keys = like.new_ones((1, tokens, kv_heads, width))
    queries = like.new_ones((1, QUERIES, heads, width))
    cache = KVCache(tokens)
    for layer in range(len(model.positions.layers)):
        cache.write(layer, slots, keys[0], keys[0])

    def rotate(states: Any) -> Any:
        # One tensor of turns for all layers, as in a step: its tables are computed once.
        turns = like.new_full(states.shape[:2], DISTANCE).long()
        return [rotary.rotate(states, turns) for rotary in rotaries][-1]

    def move() -> Any:
        cache.move(slots, slots, like.new_full((tokens,), DISTANCE).long(), model.positions)
        return cache.read(0, slots[:1])[0]

    ways: tuple[Callable[[], Any], ...] = (lambda: rotate(queries), lambda: rotate(keys), move)
    seconds: tuple[list[float], ...] = ([], [], [])
    for _ in range(max(repeats, LEAST_REPEATS) + 1):
        for way, found in zip(ways, seconds, strict=True):
            found.append(_time(way))
    # The first run is a warm-up.
    row = Moved(tokens, *(tokens / (1e3 * median(found[1:])) for found in seconds))
    say(str(row))
    return row


def _time(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way().flatten()[0].item()  # waits for an accelerator
    return time.perf_counter() - start
