"""Encoders as operations of the native runtime: BERT and all that call themselves so, as MiniLM,
and ModernBERT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relquery._native import Network, Rows
from relquery.model.formats.config import ConfigReader
from relquery.model.formats.safetensors import Weights, narrow
from relquery.model.networks.builder import NetworkBuilder
from relquery.model.networks.decoder import Attention
from relquery.model.networks.families import (
    FULL,
    SLIDING,
    activation_of,
    family_of,
    head_count,
    layer_count,
    windows_of,
)
from relquery.model.networks.rotation import read_rotation

ALL = 1 << 30
"""How far ahead tokens see that see all of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderNames:
    """Names of weights."""

    tokens: str
    norm: str
    """Of embedded tokens."""
    layer: str
    """What those of a layer begin with, by its number."""
    qkv: tuple[str, ...]
    attention: str
    """The matrix behind attention."""
    up: str
    down: str
    norms: tuple[tuple[str, str], ...]
    """Of each layer, behind attention and behind the perceptron."""
    positions: str = ""
    """The table that is added by position; "" for none."""
    types: str = ""
    """The table whose first row is added then."""
    within: str = ""
    """What all names begin with where the network has a head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """The shape of an encoder, and what differs between families."""

    hidden: int
    inner: int
    heads: int
    vocabulary: int
    context: int
    layers: tuple[Attention, ...]
    """window: how far a token sees before and after itself, itself included; 0 for all."""
    activation: int
    epsilon: float
    """Of its norms."""
    is_gated: bool
    """Whether perceptrons are gated."""
    adds_normed: bool
    """Whether results are added to normalized states (as in the first Transformers), or to those
    before they are normalized."""
    names: EncoderNames


class EncoderBuilder(NetworkBuilder):
    """A builder of an encoder's network from weights. It computes in float32, and its result, in
    the place of logits, are the last hidden states."""

    def __init__(self, shape: EncoderShape, weights: Weights, threads: int) -> None:
        super().__init__(Network(0), weights, 0, threads)
        self._shape = shape
        within = shape.names.within
        self._within = within if weights.take(f"{within}{shape.names.tokens}.weight") else ""

    def build(self) -> Network:
        """The network, whose weights are packed."""
        s, net, names = self._shape, self._net, self._shape.names
        hidden, queries = (net.add_buffer(s.hidden, own=True) for _ in range(2))
        normed = hidden if s.adds_normed else net.add_buffer(s.hidden)
        projected = net.add_buffer(3 * s.hidden)
        outputs, added = (net.add_buffer(s.hidden) for _ in range(2))
        net.look_up(-1, net.add_rows(self._table(names.tokens, s.vocabulary)), hidden)
        if names.positions:
            net.look_up(-1, net.add_rows(self._positions()), added, of_positions=True)
        self._normalize(names.norm, hidden, added if names.positions else -1, hidden)
        source = hidden
        rotations = list(dict.fromkeys(it.rotation for it in s.layers if it.rotation))
        for rotation in rotations:
            net.set_tables(net.add_rotation(), *rotation.tables(np.arange(s.context)))
        for number, attention in enumerate(s.layers):
            turned = rotations.index(attention.rotation) if attention.rotation else -1
            within = self._within + names.layer.format(number)
            net.multiply(source, self._pack(names.qkv, within), projected)
            net.rotate(projected, queries, number, s.heads, s.heads, turned, [], [], 0.0)
            net.attend(
                queries,
                outputs,
                number,
                s.heads,
                turned,
                (s.hidden // s.heads) ** -0.5,
                attention.window,
                0.0,
                attention.window - 1 if attention.window else ALL,
            )
            net.multiply(outputs, self._pack([names.attention], within), added)
            before, after = names.norms[number]
            self._normalize(before, hidden, added, normed)
            self._perceive(
                normed,
                added,
                [names.up],
                names.down,
                within,
                s.inner,
                s.activation,
                is_gated=s.is_gated,
            )
            last = net.add_buffer(s.hidden) if number + 1 == len(s.layers) else normed
            self._normalize(after, hidden, added, last)
            source = normed
            self._weights.release()
        return net

    def _table(self, name: str, count: int) -> Rows:
        rows = self._weights[f"{self._within}{name}.weight"]
        if rows.shape != (count, self._shape.hidden):
            raise ValueError("the sizes of an embedding do not fit")
        return rows.rows

    def _positions(self) -> Rows:
        """What is added to a token by its position, and to all as the first of two texts."""
        types, positions = (
            self._weights[f"{self._within}{each}.weight"].floats()
            for each in (self._shape.names.types, self._shape.names.positions)
        )
        if len(positions) < self._shape.context:
            raise ValueError("there are fewer positions than it says")
        return Rows(narrow((positions + types[0]).reshape(-1), 0), 0, *positions.shape)

    def _normalize(self, name: str, source: int, added: int, result: int) -> None:
        """LayerNorm of rows, to which others are added first."""
        name = self._within + name
        weight = self._weights.take(f"{name}.gamma") or self._weights[f"{name}.weight"]
        bias = self._weights.take(f"{name}.beta") or self._weights.take(f"{name}.bias")
        self._net.normalize(
            source,
            added,
            result,
            weight.floats().tolist(),
            self._shape.epsilon,
            centered=True,
            bias=[] if bias is None else bias.floats().tolist(),
        )


def bert(settings: ConfigReader) -> EncoderShape:
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


def modernbert(settings: ConfigReader) -> EncoderShape:
    """A ModernBERT: layers see all of a text or what is near, with frequencies of their own."""
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
    usual = [SLIDING if index % every else FULL for index in range(count)]
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
                    f"layers.{index}.mlp_norm",
                    f"layers.{index + 1}.attn_norm" if index + 1 < count else "final_norm",
                )
                for index in range(count)
            ),
            within="model.",
        ),
    )


_ENCODERS: dict[str, Callable[[ConfigReader], EncoderShape]] = {
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


def read_encoder(settings: ConfigReader) -> EncoderShape:
    """The encoder that a configuration describes. Raises ModelError."""
    settings.expect("quantization_config", None)
    shape = family_of(settings, _ENCODERS)(settings)
    settings.end(_OF_TRAINING)
    return shape
