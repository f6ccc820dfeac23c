"""How the batch reaches attention modules of networks that do not pass keyword arguments on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import MethodType
from typing import Any

from torch import nn
from transformers import PreTrainedModel

Attentions = Callable[[Any], Iterable[nn.Module]]


BATCH: ContextVar[Any] = ContextVar("batch", default=None)
"""The batch of the network that runs, for attention modules that are not handed it."""


def replace_attention(
    network: PreTrainedModel, attentions: Attentions, forward: Callable[..., Any]
) -> None:
    """Let each of the network's attention modules run `forward(module, ...)` in place of its own.

    While the network runs, its keyword argument `batch` is the value of BATCH. The networks' own
    code drops unknown arguments on the way down, and hooks at its two ends are less to keep in step
    with than copies of every forward between. It is gone when the pass ends, failed or not, so that
    no batch outlives its step; passes that take turns have a context each.
    """

    def give(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        BATCH.set(kwargs.get("batch"))

    def take(module: nn.Module, args: Any, output: Any) -> None:
        BATCH.set(None)

    for attention in attentions(network):
        setattr(attention, "forward", MethodType(forward, attention))  # noqa: B010 (mypy)
    network.register_forward_pre_hook(give, with_kwargs=True)
    network.register_forward_hook(take, always_call=True)
