"""The attention function that `transformers` networks call: packed tokens, segmented contexts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from relquery.errors import ModelError
from relquery.model.torch_runtime.attention.batch import PackedBatch

NAME = "relquery"
"""Name under which the function is registered; a network's `_attn_implementation`."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What networks asked of our attention function.

    asked: sizes of sliding windows and the like, in tokens, for which a network wanted a mask.
    used: which it then told its attention function.
    """

    asked: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)


_watching: ContextVar[Watched | None] = ContextVar("watching", default=None)


@contextmanager
def watch_calls() -> Iterator[Watched]:
    """What the networks that run meanwhile, in this thread, ask of our attention function."""
    watched = Watched()
    before = _watching.set(watched)
    try:
        yield watched
    finally:
        _watching.reset(before)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    batch: PackedBatch | None = None,
    alibi: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed batch over its segments, as `AttentionInterface` asks for.

    query: (1, heads, tokens, head_dim); key, value: (1, kv_heads, tokens, head_dim). alibi:
    (heads,) slopes, by which scores fall with the distance. Writes keys and values to the batch's
    cache. Returns (1, tokens, heads, head_dim).
    """
    if batch is None:
        raise ModelError(
            "This network does not hand the batch on to its attention function, so it cannot run "
            "on the local engine. Use another model, or a server."
        )
    if kwargs.get("s_aux") is not None:
        raise ModelError("Networks with attention sinks are not supported by the local engine.")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if sliding_window is not None and (watched := _watching.get()) is not None:
        watched.used.add(sliding_window)
    queries, keys, values = (t[0].transpose(0, 1) for t in (query, key, value))
    batch.write(layer, keys, values)
    if batch.turn is not None:
        del keys, values  # views, which would keep alive what the turn releases
        batch.turn(layer, (key, value))
    outputs = batch.attend(
        layer,
        queries,
        scale=scale,
        window=sliding_window,
        softcap=softcap,
        slopes=alibi,
    )
    return outputs.unsqueeze(0), None


def _no_mask(*args: Any, local_size: int | None = None, **kwargs: Any) -> None:
    """The batch says what attends to what; a network need not build a mask."""
    if local_size is not None and (watched := _watching.get()) is not None:
        watched.asked.add(local_size)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _no_mask)
