"""An encoder as operations of the native runtime: what BERT and ModernBERT share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relquery._native import Network, Rows
from relquery.model.formats.safetensors import Weights, narrow
from relquery.model.networks.builder import NetworkBuilder
from relquery.model.networks.decoder import Attention

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
    """Makes a network of an encoder from weights. It computes in float32, and its result, in the
    place of logits, are the last hidden states."""

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
        found = self._weights[f"{self._within}{name}.weight"]
        if found.shape != (count, self._shape.hidden):
            raise ValueError("the sizes of an embedding do not fit")
        return found.rows

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
