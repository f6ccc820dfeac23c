"""ModernBERT: layers see all of a text or what is near, with frequencies of their own; gated."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention
from relquery.model.networks.encoder import EncoderNames, EncoderShape
from relquery.model.networks.families.common import (
    FULL,
    SLIDING,
    activation_of,
    head_count,
    layer_count,
    windows_of,
)
from relquery.model.networks.rotation import read_rotation


def modernbert(settings: Settings) -> EncoderShape:
    """A ModernBERT."""
    for key in ("layer_norm_eps", "position_embedding_type"):
        settings.get(key)  # which nothing reads
    hidden, heads = settings.integer("hidden_size"), head_count(settings)
    count = layer_count(settings)
    far, near = (
        read_rotation(settings, hidden // heads, name=kind, theta=settings.number(key, theta))
        for kind, key, theta in (
            (FULL, "global_rope_theta", 160_000.0),
            (SLIDING, "local_rope_theta", 10_000.0),
        )
    )
    every = settings.integer("global_attn_every_n_layers", 3)
    usual = [SLIDING if at % every else FULL for at in range(count)]
    for key in ("attention_bias", "mlp_bias", "norm_bias"):
        settings.flag(key, False)  # which are read where they are
    window = settings.integer("local_attention", 128) // 2 + 1
    return EncoderShape(
        hidden=hidden,
        inner=settings.integer("intermediate_size"),
        heads=heads,
        vocabulary=settings.integer("vocab_size"),
        context=settings.integer("max_position_embeddings"),
        layers=tuple(
            Attention(near if each else far, each) for each in windows_of(settings, window, usual)
        ),
        activation=activation_of(settings, "hidden_activation", "gelu"),
        epsilon=settings.number("norm_eps", 1e-5),
        is_gated=True,
        adds_normed=False,
        names=EncoderNames(
            tokens="embeddings.tok_embeddings",
            norm="embeddings.norm",
            layer="layers.{}",
            qkv=("attn.Wqkv",),
            attention="attn.Wo",
            up="mlp.Wi",
            down="mlp.Wo",
            norms=tuple(
                (
                    f"layers.{at}.mlp_norm",
                    f"layers.{at + 1}.attn_norm" if at + 1 < count else "final_norm",
                )
                for at in range(count)
            ),
            within="model.",
        ),
    )
