"""What most families say in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relquery.model.formats.config import Settings
from relquery.model.networks.builder import ACTIVATIONS
from relquery.model.networks.decoder import Attention, Decoder

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers."""


def decoder_of(
    settings: Settings, layers: Sequence[Attention], width: int, **other: Any
) -> Decoder:
    """A decoder of layers whose heads have a width. other: fields that the family says itself."""
    settings.expect("rope_interleaved", False)
    if "activation" not in other:
        other["activation"] = activation_of(settings, "hidden_act", "silu")
    context, heads = settings.integer("max_position_embeddings"), head_count(settings)
    bounds = [each.rotation.context or context for each in layers if each.rotation is not None]
    usual = {"scale": width**-0.5, "is_tied": settings.flag("tie_word_embeddings", False)}
    return Decoder(
        hidden=settings.integer("hidden_size"),
        inner=settings.integer("intermediate_size"),
        heads=heads,
        kv_heads=settings.integer("num_key_value_heads", heads),
        width=width,
        vocabulary=settings.integer("vocab_size"),
        context=min([context, *bounds]),
        layers=tuple(layers),
        epsilon=settings.number("rms_norm_eps", 1e-6),
        **usual | other,
    )


def activation_of(settings: Settings, key: str, usual: str) -> int:
    """The activation of perceptrons."""
    found = settings.text(key, usual)
    if found not in ACTIVATIONS:
        raise settings.refused(f"its activation is '{found}'")
    return ACTIVATIONS[found]


def head_count(settings: Settings) -> int:
    """Heads of queries."""
    return settings.integer("num_attention_heads")


def layer_count(settings: Settings) -> int:
    """Layers."""
    return settings.integer("num_hidden_layers")


def head_width(settings: Settings) -> int:
    """The width of a head."""
    usual = settings.integer("hidden_size") // head_count(settings)
    return settings.integer("head_dim", usual)


def read_biases(settings: Settings) -> None:
    """Understand what says that matrices have biases, which are read where they are."""
    for key in ("attention_bias", "mlp_bias"):
        settings.flag(key, False)


def windows_of(settings: Settings, window: int, usual: Sequence[str]) -> list[int]:
    """The window of each layer, 0 for none. usual: kinds of layers where none are listed."""
    listed = settings.get("layer_types") or usual
    if not isinstance(listed, Sequence) or len(listed) != layer_count(settings):
        raise settings.refused("layer_types is not a list of a kind for each layer")
    unknown = sorted({*map(str, listed)} - {FULL, SLIDING})
    if unknown:
        raise settings.refused(f"it has layers of the kind '{unknown[0]}'")
    return [window if each == SLIDING else 0 for each in listed]


def check_no_windows(settings: Settings) -> None:
    """Refuse layers with a window in a family that has none."""
    if any(windows_of(settings, 1, [FULL] * layer_count(settings))):
        raise settings.refused("layer_types lists layers with a window, which its kind has not")
