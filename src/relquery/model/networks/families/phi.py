"""Phi-3 and 4: matrices with a common input are one in its files."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import decoder_of, head_width, layer_count
from relquery.model.networks.rotation import read_rotation


def phi3(settings: Settings) -> Decoder:
    """A Phi-3."""
    width = head_width(settings)
    rotation = read_rotation(settings, width, may_be_partial=True)
    settings.get("original_max_position_embeddings")  # also where nothing is rotated by it
    for key in ("attention_bias", "lm_head_bias", "mlp_bias"):
        settings.expect(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):  # of files that bring their own code
        settings.expect(key, 1)
    window = settings.integer("sliding_window", 0, least=0)
    layers = [Attention(rotation, window)] * layer_count(settings)
    joined = {"qkv": ("qkv_proj",), "gate_up": ("gate_up_proj",)}
    return decoder_of(settings, layers, width, **joined)
