"""Qwen 2, 2.5 and 3: later layers may have a window; 3 normalizes heads."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import (
    FULL,
    SLIDING,
    decoder_of,
    head_width,
    layer_count,
    windows_of,
)
from relquery.model.networks.rotation import read_rotation


def qwen(settings: Settings) -> Decoder:
    """A Qwen 2 or 3."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width)
    settings.flag("attention_bias", False)
    settings.expect("use_mrope", False)
    first = settings.integer("max_window_layers", count, least=0)
    window = settings.integer("sliding_window", 0, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    usual = [SLIDING if at >= first else FULL for at in range(count)]
    layers = [Attention(rotation, each) for each in windows_of(settings, window, usual)]
    has_norms = settings.text("model_type") == "qwen3"
    return decoder_of(settings, layers, width, has_head_norms=has_norms)
