"""Mistral: Llama with a window."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import (
    SLIDING,
    decoder_of,
    head_width,
    layer_count,
    windows_of,
)
from relquery.model.networks.rotation import read_rotation


def mistral(settings: Settings) -> Decoder:
    """A Mistral."""
    width = head_width(settings)
    rotation = read_rotation(settings, width)
    window = settings.integer("sliding_window", 0, least=0)
    windows = windows_of(settings, window, [SLIDING] * layer_count(settings))
    return decoder_of(settings, [Attention(rotation, each) for each in windows], width)
