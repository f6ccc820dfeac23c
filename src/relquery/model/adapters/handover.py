"""How the batch reaches attention modules of networks that do not pass keyword arguments on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from torch import nn
from transformers import PreTrainedModel

Attentions = Callable[[Any], Iterable[nn.Module]]


def replace_attention(
    network: PreTrainedModel, attentions: Attentions, forward: Callable[..., Any]
) -> None:
    """Let each of the network's attention modules run `forward(module, ...)` in place of its own.

    While the network runs, its keyword argument `batch` is the attribute `batch` of each of them.
    The networks' own code drops unknown arguments on the way down, and hooks at its two ends are
    less to keep in step with than copies of every forward between. The attribute goes when the
    pass ends, failed or not, so that no batch outlives its step.
    """

    def give(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        _set(attentions(module), kwargs.get("batch"))

    def take(module: nn.Module, args: Any, output: Any) -> None:
        _set(attentions(module), None)

    for attention in attentions(network):
        setattr(attention, "forward", MethodType(forward, attention))  # noqa: B010 (mypy)
    _set(attentions(network), None)
    network.register_forward_pre_hook(give, with_kwargs=True)
    network.register_forward_hook(take, always_call=True)


def _set(modules: Iterable[nn.Module], batch: Any) -> None:
    for module in modules:
        module.batch = batch
