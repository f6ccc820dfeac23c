"""What a run of a network holds while it waits in an attention, and never reads again.

The frames of a network's own code keep tensors that they have no more use for: the embeddings, the
input of an attention, its keys and values. Emptied in place, their memory is free, whoever still
names them. Which of them a network is done with is found by experiment: whoever reads an emptied
tensor fails, as its shape is another.
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

    states: these themselves. inputs: what the attention was given to compute them from.
    embeddings: of the tokens, from the second layer on.
    """

    states: bool = False
    inputs: bool = False
    embeddings: bool = False


NOTHING = Release()


@dataclass(slots=True)
class Held:
    """What the run under way has been given, to be emptied in time."""

    inputs: Tensor | None = None
    embeddings: Tensor | None = None


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)
"""Of the run under way: runs that take turns have a context each."""


def find_release(run: Callable[[Release], object]) -> Release:
    """What a network never reads again. run: gives the results of a few slices under a release."""
    found = NOTHING
    expected = run(found)
    for name in ("states", "inputs", "embeddings"):
        tried = replace(found, **{name: True})
        try:
            found = tried if run(tried) == expected else found
        except (RuntimeError, IndexError, ValueError):
            continue  # it read what was empty
    return found


def watch(network: PreTrainedModel) -> None:
    """Have a network's runs tell what their attentions are given and what tokens become."""

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
    """Note what the run that begins here is given."""
    _HELD.set(Held())


def let_go(release: Release, layer: int, keys: Tensor, values: Tensor) -> None:
    """Empty what the run under way is done with, once keys and values of a layer are stored."""
    held = _HELD.get()
    if held is None:
        return
    if release.states:
        for states in (keys, values):
            _empty(states)
    if release.inputs and held.inputs is not None:
        _empty(held.inputs)
        held.inputs = None
    if release.embeddings and layer > 0 and held.embeddings is not None:
        _empty(held.embeddings)
        held.embeddings = None


def _empty(tensor: Tensor) -> None:
    empty: Callable[[], Tensor] = tensor.set_  # type: ignore[assignment]
    empty()
