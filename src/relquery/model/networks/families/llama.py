"""Llama, SmolLM 2 and all that call themselves so; and SmolLM 3, some of whose layers have keys
without a position."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import (
    SLIDING,
    check_no_windows,
    decoder_of,
    head_width,
    layer_count,
    read_biases,
    windows_of,
)
from relquery.model.networks.rotation import read_rotation


def llama(settings: Settings) -> Decoder:
    """A Llama."""
    width = head_width(settings)
    read_biases(settings)
    check_no_windows(settings)
    layers = [Attention(read_rotation(settings, width))] * layer_count(settings)
    return decoder_of(settings, layers, width)


def smollm3(settings: Settings) -> Decoder:
    """A SmolLM 3."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width, theta=2e6)
    read_biases(settings)
    settings.get("max_window_layers")  # of Qwen's, which it was made from
    window = settings.integer("sliding_window", 0, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    every = settings.integer("no_rope_layer_interval", 4)
    turned = settings.get("no_rope_layers") or [(at + 1) % every > 0 for at in range(count)]
    if not isinstance(turned, list) or len(turned) != count:
        raise settings.refused("no_rope_layers is not a list of a number for each layer")
    windows = windows_of(settings, window, [SLIDING] * count)
    layers = [
        Attention(rotation if is_turned else None, each)
        for is_turned, each in zip(turned, windows, strict=True)
    ]
    is_tied = settings.flag("tie_word_embeddings", True)
    return decoder_of(settings, layers, width, is_tied=is_tied)
