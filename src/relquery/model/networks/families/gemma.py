"""Gemma 2 and 3: layers with and without a window take turns, and results are normalized too.

In Gemma 3 layers with a window have frequencies of their own, and heads are normalized.
"""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention, Decoder
from relquery.model.networks.families.common import (
    FULL,
    SLIDING,
    activation_of,
    decoder_of,
    layer_count,
    windows_of,
)
from relquery.model.networks.rotation import Rotation, read_rotation


def gemma2(settings: Settings) -> Decoder:
    """A Gemma 2."""
    width = settings.integer("head_dim", 256)
    rotation = read_rotation(settings, width)
    softcap = _softcap(settings, "attn_logit_softcapping", 50.0)
    logits_softcap = _softcap(settings, "final_logit_softcapping", 30.0)
    return _gemma(
        settings,
        rotation,
        rotation,
        every=2,
        has_head_norms=False,
        softcap=softcap,
        logits_softcap=logits_softcap,
    )


def _softcap(settings: Settings, key: str, usual: float) -> float:
    """A bound of scores or logits, 0 for none. usual: where the key is not there."""
    return settings.number(key, 0.0) if key in settings else usual


def gemma3(settings: Settings) -> Decoder:
    """The decoder of a Gemma 3."""
    width = settings.integer("head_dim", 256)
    far = read_rotation(settings, width, name=FULL, theta=1e6)
    theta = settings.number("rope_local_base_freq", 1e4)
    given = settings.within("rope_parameters")
    if given is not None and SLIDING in given:
        near = read_rotation(settings, width, name=SLIDING, theta=theta)
    else:
        near = read_rotation(Settings(settings.name, {"rope_theta": theta}), width)
    settings.get("_sliding_window_pattern")  # what layer_types was made of
    every = settings.integer("sliding_window_pattern", 6)
    settings.get("attn_logit_softcapping")  # which it does not read
    return _gemma(
        settings,
        far,
        near,
        every=every,
        has_head_norms=True,
        softcap=0.0,
        logits_softcap=settings.number("final_logit_softcapping", 0.0),
    )


def _gemma(
    settings: Settings,
    far: Rotation,
    near: Rotation,
    *,
    every: int,
    has_head_norms: bool,
    softcap: float,
    logits_softcap: float,
) -> Decoder:
    """far, near: rotations of layers without and with a window. every: the how manieth has none."""
    settings.flag("attention_bias", False)
    settings.get("hidden_act")  # which it does not read
    settings.expect("use_bidirectional_attention", False, None)
    usual = [SLIDING if (at + 1) % every else FULL for at in range(layer_count(settings))]
    window = settings.integer("sliding_window", 4096)
    settings.expect("sliding_window_size", window)
    windows = windows_of(settings, window, usual)
    return decoder_of(
        settings,
        [Attention(near if each else far, each) for each in windows],
        settings.integer("head_dim", 256),
        scale=settings.number("query_pre_attn_scalar", 256.0) ** -0.5,
        activation=activation_of(settings, "hidden_activation", "gelu_pytorch_tanh"),
        softcap=softcap,
        logits_softcap=logits_softcap,
        norm_offset=1.0,
        has_head_norms=has_head_norms,
        has_post_norms=True,
        embedding_scale=settings.integer("hidden_size") ** 0.5,
        is_tied=settings.flag("tie_word_embeddings", True),
    )
