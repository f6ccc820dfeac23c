"""Qwen 2, 2.5 and 3: later layers may have a window; 3 normalizes heads, and may have experts."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder, Experts
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


def qwen3_moe(settings: Settings) -> Decoder:
    """A Qwen 3 with experts. All layers have a window, or none has."""
    width, count = head_width(settings), layer_count(settings)
    rotation = read_rotation(settings, width)
    settings.flag("attention_bias", False)
    window = settings.integer("sliding_window", 4096, least=0)
    if not settings.flag("use_sliding_window", False):
        window = 0
    for key in ("max_window_layers", "output_router_logits", "router_aux_loss_coef"):
        settings.get(key)  # nothing reads them here
    layers = [Attention(rotation, window)] * count
    return decoder_of(
        settings, layers, width, has_head_norms=True, experts=_experts(settings, count)
    )


def _experts(settings: Settings, count: int) -> Experts:
    every, listed = settings.integer("decoder_sparse_step", 1), settings.get("mlp_only_layers")
    dense = [] if listed is None else listed
    if not isinstance(dense, list) or not all(type(each) is int for each in dense):
        raise settings.refused("mlp_only_layers is not a list of numbers of layers")
    layers = frozenset(at for at in range(count) if (at + 1) % every == 0) - {*dense}
    experts = settings.integer("num_experts", settings.integer("num_local_experts", 128))
    chosen = settings.integer("num_experts_per_tok", 8)
    if chosen > experts:
        raise settings.refused(f"a token has {chosen} of {experts} experts")
    inner = settings.integer("moe_intermediate_size", 768)
    return Experts(layers, experts, chosen, inner, settings.flag("norm_topk_prob", False))
