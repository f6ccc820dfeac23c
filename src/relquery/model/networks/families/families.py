"""Families by the model_type of config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from relquery.model.formats.config import Settings
from relquery.model.networks.decoder import Decoder
from relquery.model.networks.encoder import EncoderShape
from relquery.model.networks.families.bert import bert
from relquery.model.networks.families.gemma import gemma2, gemma3
from relquery.model.networks.families.granite import granite
from relquery.model.networks.families.llama import llama, smollm3
from relquery.model.networks.families.mistral import mistral
from relquery.model.networks.families.modernbert import modernbert
from relquery.model.networks.families.phi import phi3
from relquery.model.networks.families.qwen import qwen, qwen3_moe

T = TypeVar("T")
FAMILIES: dict[str, Callable[[Settings], Decoder]] = {
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "granite": granite,
    "llama": llama,
    "mistral": mistral,
    "phi3": phi3,
    "qwen2": qwen,
    "qwen3": qwen,
    "qwen3_moe": qwen3_moe,
    "smollm3": smollm3,
}


ENCODERS: dict[str, Callable[[Settings], EncoderShape]] = {
    "bert": bert,
    "modernbert": modernbert,
}
_OF_TRAINING = frozenset(
    {
        "attention_probs_dropout_prob",
        "chunk_size_feed_forward",
        "classifier_activation",
        "classifier_bias",
        "classifier_dropout",
        "classifier_pooling",
        "decoder_bias",
        "deterministic_flash_attn",
        "directionality",
        "embedding_dropout",
        "finetuning_task",
        "gradient_checkpointing",
        "hidden_dropout_prob",
        "initializer_cutoff_factor",
        "mlp_dropout",
        "model_max_length",
        "output_past",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",
        "tie_word_embeddings",
        "torchscript",
    }
)
"""Keys that say how an encoder was trained, or what a head on it is like."""


def read_encoder(settings: Settings) -> EncoderShape:
    """The encoder that a configuration describes. Raises ModelError."""
    settings.expect("quantization_config", None)
    shape = _family(settings, ENCODERS)(settings)
    settings.end(_OF_TRAINING)
    return shape


def read_decoder(settings: Settings) -> Decoder:
    """The decoder that a configuration describes. Raises ModelError."""
    decoder = _family(settings, FAMILIES)(settings)
    settings.end()
    return decoder


def _family(settings: Settings, families: Mapping[str, T]) -> T:
    kind = settings.text("model_type")
    if kind not in families:
        known = ", ".join(sorted(families))
        raise settings.refused(f"it is of the kind '{kind}', and the engine computes {known}")
    return families[kind]
