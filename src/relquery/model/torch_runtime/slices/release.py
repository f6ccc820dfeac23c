"""Tensors that a run of a network still holds while it waits in an attention but never reads again.

The frames of a network's own code keep tensors that they no longer need: the embeddings, the
input of an attention, its keys and values. If they are emptied in place, their memory is free even
though variables still refer to them. Which of them a network no longer needs is found by
experiment: code that reads an emptied tensor fails, because its shape has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Release:
    """What may be emptied once the keys and values of a layer are stored.

    states: the keys and values themselves. inputs: the attention's input that they come from.
    embeddings: of the tokens, from the second layer on.
    """

    states: bool = False
    inputs: bool = False
    embeddings: bool = False


NOTHING = Release()


@dataclass(slots=True)
class Held:
    """Tensors given to the current run, to be emptied as early as possible."""

    inputs: Tensor | None = None
    embeddings: Tensor | None = None


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)
"""The tensors of the current run; runs that take turns each have their own context."""


def find_release(run: Callable[[Release], object]) -> Release:
    """What a network never reads again. run: returns results of a few slices under a release."""
    found = NOTHING
    expected = run(found)
    for name in ("states", "inputs", "embeddings"):
        tried = replace(found, **{name: True})
        try:
            found = tried if run(tried) == expected else found
        except (RuntimeError, IndexError, ValueError):
            continue  # it read an emptied tensor
    return found


def watch(network: PreTrainedModel) -> None:
    """Record the inputs of attentions and the token embeddings in a network's runs."""

    def note_inputs(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        held = _HELD.get()
        if held is not None:
            given = kwargs.get("hidden_states", args[0] if args else None)
            held.inputs = given if isinstance(given, Tensor) else None

    def note_embeddings(module: nn.Module, args: Any, output: Any) -> None:
        held = _HELD.get()
        if held is not None and isinstance(output, Tensor):
            held.embeddings = output

    for module in network.modules():
        if hasattr(module, "layer_idx") and type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(note_inputs, with_kwargs=True)
    network.get_input_embeddings().register_forward_hook(note_embeddings)


def begin() -> None:
    """Start recording for the run that begins here."""
    _HELD.set(Held())


def let_go(release: Release, layer: int, states: tuple[Tensor, ...]) -> None:
    """Empty what the current run no longer needs once a layer's keys and values are stored.

    states: the tensors that held them.
    """
    held = _HELD.get()
    if held is None:
        return
    if release.states:
        for each in states:
            _empty(each)
    if release.inputs and held.inputs is not None:
        _empty(held.inputs)
        held.inputs = None
    if release.embeddings and layer > 0 and held.embeddings is not None:
        _empty(held.embeddings)
        held.embeddings = None


def _empty(tensor: Tensor) -> None:
    empty: Callable[[], Tensor] = tensor.set_  # type: ignore[assignment]
    empty()
