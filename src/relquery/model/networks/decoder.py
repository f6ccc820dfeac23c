"""A decoder as operations of the native runtime: what all families of Llama's kind share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relquery._native import Network, Rows
from relquery.errors import ModelError
from relquery.model.formats.adapter import Lora
from relquery.model.formats.safetensors import Weight, Weights
from relquery.model.networks.builder import ADAPTED, BETWEEN, NetworkBuilder, widest_rank
from relquery.model.networks.rotation import Rotation

JOINED = {"gate_proj": "gate_up_proj", "down_proj": "down_proj"}
"""Names of the matrices of all experts where they are one, by that of the first of them."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer. rotation: of its keys, None for none. window: tokens, 0 for all."""

    rotation: Rotation | None
    window: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """Perceptrons of which a router chooses some for each token."""

    layers: frozenset[int]
    """Those that have them in the place of one perceptron."""
    count: int
    chosen: int
    """Of a token."""
    inner: int
    """Width inside of one."""
    divides: bool
    """Whether the shares of those chosen are made to add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The shape of a network, and what differs between families."""

    hidden: int
    """Width of the states between layers."""
    inner: int
    """Width inside of a layer's perceptron."""
    heads: int
    kv_heads: int
    width: int
    """Of a head."""
    vocabulary: int
    context: int
    """Positions that it has, in tokens."""
    layers: tuple[Attention, ...]
    activation: int
    epsilon: float
    """Of its norms."""
    scale: float
    """Of attention scores."""
    softcap: float = 0.0
    """Of attention scores; 0 for none."""
    norm_offset: float = 0.0
    """What is added to the weights of norms, which then round only what is weighed."""
    has_head_norms: bool = False
    """Whether each head's queries and keys are normalized before they are rotated."""
    has_post_norms: bool = False
    """Whether the results of attention and perceptron are normalized before they are added."""
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    """Of the results of attention and perceptron."""
    logits_scale: float = 1.0
    logits_softcap: float = 0.0
    experts: Experts | None = None
    """In the place of some layers' perceptrons; None for none."""
    is_tied: bool = False
    """Whether the embedding is also what gives logits."""
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Names of matrices whose rows are those of queries, keys and values."""
    gate_up: tuple[str, ...] = ("gate_proj", "up_proj")

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Heads of keys and the widths of keys and values, by layer."""
        return [(self.kv_heads, self.width, self.width)] * len(self.layers)

    @property
    def rotations(self) -> list[Rotation]:
        """The different rotations of its layers."""
        return list(dict.fromkeys(each.rotation for each in self.layers if each.rotation))


class DecoderBuilder(NetworkBuilder):
    """A builder of a decoder's network from weights.

    report: called with the share of layers that are packed, from 0 to 1. in_int8: whether rows are
    rounded where they are multiplied with matrices in few bits.
    """

    def __init__(
        self,
        decoder: Decoder,
        weights: Weights,
        kind: int,
        threads: int,
        report: Callable[[float], None] = lambda share: None,
        bits: int = 0,
        in_int8: bool = False,
        loras: Sequence[Lora] = (),
    ) -> None:
        net = Network(kind, rounds_once=decoder.norm_offset != 0, in_int8=in_int8)
        super().__init__(net, weights, kind, threads, bits, loras)
        self._decoder, self._report = decoder, report

    def build(self) -> Network:
        """The network, whose weights are packed."""
        d, net = self._decoder, self._net
        self._hidden, self._queries = (
            net.add_buffer(each, own=True) for each in (d.hidden, d.heads * d.width)
        )
        self._normed, self._post, self._added = (net.add_buffer(d.hidden) for _ in range(3))
        self._outputs = net.add_buffer(d.heads * d.width)
        self._projected = net.add_buffer((d.heads + 2 * d.kv_heads) * d.width)
        # Both, though a gated product needs one: the other is room for what is not counted.
        self._place("activated", d.inner), self._place("before it is activated", 2 * d.inner)
        if self._loras:
            self._place(ADAPTED, max(d.hidden, (d.heads + 2 * d.kv_heads) * d.width, 2 * d.inner))
            self._place(BETWEEN, widest_rank(self._loras))
        last, last_queries = (net.add_buffer(each) for each in (d.hidden, d.heads * d.width))
        rotations = {each: net.add_rotation() for each in d.rotations}
        if self._weights["model.embed_tokens.weight"].shape[0] != d.vocabulary:
            raise ValueError("the sizes of an embedding do not fit")
        head = self._embed()
        added = -1
        for number, attention in enumerate(d.layers):
            added = self._layer(
                number,
                attention,
                rotations[attention.rotation] if attention.rotation else -1,
                added,
                (last, last_queries) if number == len(d.layers) - 1 else None,
            )
            self._weights.release()
            self._report((number + 1) / len(d.layers))
        wanted = net.add_buffer(d.hidden)
        self._normalize("model.norm", last, added, wanted)
        net.set_head(wanted, head, d.logits_scale, d.logits_softcap)
        self._check_placed()
        return net

    def _check_placed(self) -> None:
        """Raises ModelError for an adapter that changes what none can change."""
        for lora in self._loras:
            if left := sorted(set(lora.changes) - self._adaptable):
                raise ModelError(
                    f"Adapter '{lora.name}' changes {left[0]}. Here adapters change the matrices "
                    "of a model's attention and of its perceptrons, without experts. Merge it into "
                    "its model with PEFT's merge_and_unload(), and open what that saves; or use it "
                    "with the model that it was trained for."
                )

    def _embed(self) -> int:
        """Look up tokens; returns the matrix that gives logits."""
        d, net, name = self._decoder, self._net, "model.embed_tokens"
        embedding = self._weights[f"{name}.weight"]
        bits = 8 if self._bits else 0  # logits are read closely
        if d.is_tied:
            copy = self._weights.take("lm_head.weight")  # which some files hold nevertheless
            if copy is not None and not _is_same(copy, embedding):
                raise ValueError("lm_head.weight is not the embedding, as it says")
            head = self._pack([name], bits=bits)
            if not (bits or embedding.is_quantised):
                net.look_up(head, -1, self._hidden, d.embedding_scale)
                return head
        else:
            head = self._pack(["lm_head"], bits=bits)
            if self._weights["lm_head.weight"].shape[0] != d.vocabulary:
                raise ValueError("the sizes of lm_head and of the embedding do not fit")
        rows = net.add_rows(embedding.rows)
        net.look_up(-1, rows, self._hidden, d.embedding_scale)
        return head

    def _layer(
        self,
        number: int,
        attention: Attention,
        rotation: int,
        added: int,
        chosen: tuple[int, int] | None,
    ) -> int:
        """A layer; returns where the result is that is to be added to the hidden states.

        chosen: where those of wanted tokens go, in the last layer.
        """
        d, net, name = self._decoder, self._net, f"model.layers.{number}"
        self._normalize(f"{name}.input_layernorm", self._hidden, added)
        self._multiply(d.qkv, f"{name}.self_attn", self._normed, self._projected)
        norms: list[list[float]] = [[], []]
        if d.has_head_norms:
            norms = [self._norm(f"{name}.self_attn.{each}_norm") for each in "qk"]
        net.rotate(
            self._projected,
            self._queries,
            number,
            d.heads,
            d.kv_heads,
            rotation,
            norms[0],
            norms[1],
            d.epsilon,
        )
        hidden, queries = self._hidden, self._queries
        if chosen is not None:
            net.choose(hidden, chosen[0])
            net.choose(queries, chosen[1])
            hidden, queries = chosen
        net.attend(
            queries, self._outputs, number, d.heads, rotation, d.scale, attention.window, d.softcap
        )
        self._multiply(["o_proj"], f"{name}.self_attn", self._outputs, self._added)
        after = "post_attention_layernorm"
        added = self._added
        if d.has_post_norms:
            self._normalize(f"{name}.{after}", added, -1, self._post)
            after, added = "pre_feedforward_layernorm", self._post
        self._normalize(f"{name}.{after}", hidden, added)
        if d.experts is not None and number in d.experts.layers:
            self._mix(d.experts, f"{name}.mlp")
        else:
            self._perceive(
                self._normed,
                self._added,
                d.gate_up,
                "down_proj",
                f"{name}.mlp",
                d.inner,
                d.activation,
            )
        if d.has_post_norms:
            self._normalize(f"{name}.post_feedforward_layernorm", self._added, -1, self._post)
            return self._post
        return self._added

    def _mix(self, experts: Experts, name: str) -> None:
        """The perceptrons that a router chooses for each token."""
        net, some = self._net, experts.chosen
        self._check_width(f"{name}.experts.0.up_proj", self._decoder.hidden, self._bits)
        self._check_width(f"{name}.experts.0.down_proj", experts.inner, self._bits)
        routed = self._place("experts' logits", experts.count)
        net.multiply(self._normed, self._pack(["gate"], name, bits=0), routed)
        up, down = (
            net.add_weight(
                self._rows(experts, name, each), None, self._threads, experts.count, self._bits
            )
            for each in (("gate_proj", "up_proj"), ("down_proj",))
        )
        net.mix(
            self._normed,
            routed,
            up,
            down,
            self._place("experts' rows", some * self._decoder.hidden),
            -1 if net.gates(up) else self._place("experts' both", 2 * some * experts.inner),
            self._place("experts' gated", some * experts.inner),
            self._added,
            some,
            experts.divides,
            self._decoder.activation,
        )

    def _rows(self, experts: Experts, name: str, parts: Sequence[str]) -> list[Rows]:
        """The rows of each expert's matrices, which are one in some files."""
        joined = self._weights.take(f"{name}.experts.{JOINED[parts[0]]}")
        if joined is not None:
            return [joined.rows]
        return [
            self._weights[f"{name}.experts.{number}.{each}.weight"].rows
            for number in range(experts.count)
            for each in parts
        ]

    def _normalize(self, name: str, source: int, added: int, result: int | None = None) -> None:
        """Normalize rows, to which others are added first."""
        d = self._decoder
        self._net.normalize(
            source,
            added,
            self._normed if result is None else result,
            self._norm(name),
            d.epsilon,
            d.residual_scale,
        )

    def _norm(self, name: str) -> list[float]:
        """The weights of a norm."""
        offset = np.float32(self._decoder.norm_offset)
        return list((self._weights[f"{name}.weight"].floats() + offset).tolist())


def _is_same(one: Weight, other: Weight) -> bool:
    return (one.kind, one.shape) == (other.kind, other.shape) and np.array_equal(
        one.bytes, other.bytes
    )
