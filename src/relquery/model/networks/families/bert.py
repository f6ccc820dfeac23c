"""BERT, and MiniLM and all that call themselves so."""

from __future__ import annotations

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Attention
from relquery.model.networks.encoder import EncoderNames, EncoderShape
from relquery.model.networks.families.common import activation_of, head_count, layer_count


def bert(settings: Settings) -> EncoderShape:
    """A BERT that reads one text, as the first of two."""
    settings.expect("position_embedding_type", "absolute")
    settings.expect("is_decoder", False)
    settings.expect("add_cross_attention", False)
    settings.expect("pruned_heads", {}, None)
    settings.integer("type_vocab_size", 2)
    count = layer_count(settings)
    return EncoderShape(
        hidden=settings.integer("hidden_size"),
        inner=settings.integer("intermediate_size"),
        heads=head_count(settings),
        vocabulary=settings.integer("vocab_size"),
        context=settings.integer("max_position_embeddings"),
        layers=(Attention(None),) * count,
        activation=activation_of(settings, "hidden_act", "gelu"),
        epsilon=settings.number("layer_norm_eps", 1e-12),
        is_gated=False,
        adds_normed=True,
        names=EncoderNames(
            tokens="embeddings.word_embeddings",
            positions="embeddings.position_embeddings",
            types="embeddings.token_type_embeddings",
            norm="embeddings.LayerNorm",
            layer="encoder.layer.{}",
            qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
            attention="attention.output.dense",
            up="intermediate.dense",
            down="output.dense",
            norms=tuple(
                (
                    f"encoder.layer.{number}.attention.output.LayerNorm",
                    f"encoder.layer.{number}.output.LayerNorm",
                )
                for number in range(count)
            ),
            within="bert.",
        ),
    )
