"""Granite: Llama with multipliers."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import (
    check_no_windows,
    decoder_of,
    head_width,
    layer_count,
    read_biases,
)
from relquery.model.networks.rotation import read_rotation


def granite(settings: Settings) -> Decoder:
    """A Granite."""
    width = head_width(settings)
    read_biases(settings)
    check_no_windows(settings)
    divisor = settings.number("logits_scaling", 1.0)
    if not divisor:
        raise settings.refused("logits_scaling is 0")
    return decoder_of(
        settings,
        [Attention(read_rotation(settings, width))] * layer_count(settings),
        width,
        scale=settings.number("attention_multiplier", 1.0),
        embedding_scale=settings.number("embedding_multiplier", 1.0),
        residual_scale=settings.number("residual_multiplier", 1.0),
        logits_scale=1 / divisor,
    )
