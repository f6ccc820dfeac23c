"""Passing the batch to attention modules in networks that do not forward keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import MethodType
from typing import Any

from torch import nn
from transformers import PreTrainedModel

Attentions = Callable[[Any], Iterable[nn.Module]]


BATCH: ContextVar[Any] = ContextVar("batch", default=None)
"""The batch of the running network, for attention modules that do not receive it."""


def replace_attention(
    network: PreTrainedModel, attentions: Attentions, forward: Callable[..., Any]
) -> None:
    """Make each of the network's attention modules run `forward(module, ...)` instead of its own.

    While the network runs, its keyword argument `batch` is the value of BATCH. The networks' own
    code drops unknown arguments on the way down, and two hooks are easier to maintain than copies
    of every forward in between. BATCH is reset when the pass ends, even if it failed, so that no
    batch outlives its step; passes that take turns each have their own context.
    """

    def give(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        BATCH.set(kwargs.get("batch"))

    def take(module: nn.Module, args: Any, output: Any) -> None:
        BATCH.set(None)

    for attention in attentions(network):
        setattr(attention, "forward", MethodType(forward, attention))  # noqa: B010 (mypy)
    network.register_forward_pre_hook(give, with_kwargs=True)
    network.register_forward_hook(take, always_call=True)
