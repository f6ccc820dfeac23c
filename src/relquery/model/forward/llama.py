"""Our own forward pass on a CPU, for Llama and networks that compute like it.

`transformers` runs some thirty operators a layer; their overhead is most of the time where few
tokens are computed. Here a layer is four matrix products with packed weights, one pass over the
rows between each two of them, and attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from relquery.arrays import Int64s
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.function import AttentionOptions
from relquery.model.forward.linear import pack, packed_weights
from relquery.model.forward.packed import padded_rows
from relquery.model.forward.recorded import RecordedStep, can_record
from relquery.model.forward.run import Layer, Norm, Run, Tables
from relquery.model.forward.stock import Logits
from relquery.model.kernels import rows
from relquery.model.kernels.arguments import KINDS, bits

KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Networks whose layers compute as ours do."""
FIXED = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embeddings whose frequencies do not change with the length."""
ACTIVATIONS = {
    "silu": rows.SILU,
    "swish": rows.SILU,
    "gelu_pytorch_tanh": rows.GELU_TANH,
}


def why_not_ours(network: PreTrainedModel) -> str:
    """Why this forward pass cannot be used in place of the network's own; "" if it can."""
    return next(_objections(network), "")


def _objections(network: PreTrainedModel) -> Iterator[str]:
    if network.device.type != "cpu":
        yield "relquery's runs on CPUs alone."
    if type(network) not in KNOWN:
        ours = ", ".join(each.__name__ for each in KNOWN)
        yield f"it is a {type(network).__name__}, and relquery's computes {ours}."
    if network.dtype not in KINDS:
        yield f"relquery's has no kernels for {network.dtype}."
    config = network.config
    if config.hidden_act not in ACTIVATIONS:
        yield f"relquery's has no activation '{config.hidden_act}'."
    kind = cast(Any, network).model.rotary_emb.rope_type
    if kind not in FIXED:
        yield f"its rotary embedding of type '{kind}' changes with the length."
    linears = [each for each in network.modules() if isinstance(each, nn.Linear)]
    if not all(type(each) is nn.Linear for each in linears):
        yield "it has quantized layers or adapters."
    if len({each.dtype for each in network.parameters()}) > 1:
        yield "its weights have several types."


class LlamaForward:
    """The forward pass of a network that `why_not_ours` has nothing against. See Forward.

    Packs the network's linear layers. options: of each layer's attention.
    """

    def __init__(self, network: PreTrainedModel, options: Sequence[AttentionOptions]) -> None:
        self.network = network
        whole: Any = network
        inner = whole.model
        config = network.config
        self._embedding: Tensor = inner.embed_tokens.weight.detach()
        self._activation = ACTIVATIONS[config.hidden_act]
        self._layers = [_layer(*each) for each in zip(inner.layers, options, strict=True)]
        self._last = _norm(inner.norm)
        self._head = pack([whole.lm_head])
        self._rotary: Any = inner.rotary_emb
        self._known_angles = torch.empty(0, 0), torch.empty(0, 0)
        self._windowed = any(each.window for each in options)
        # By whether all logits are wanted.
        self._recorded: dict[bool, RecordedStep] = {}
        if all(each.is_ours for each in packed_weights(network)):
            for every in (True, False):
                step = RecordedStep(self._embedding, self._layers[0], self._compute)
                self._recorded[every] = step

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Logits:
        """See Forward."""
        tables = self._angles(batch.last_position)
        if self._recorded and wanted and can_record(batch, self._windowed):
            logits = self._recorded[len(wanted) == batch.tokens](tokens, batch, wanted, tables)
            if logits is not None:
                return logits
        padded = torch.zeros(padded_rows(len(tokens)), dtype=torch.long)
        padded[: len(tokens)] = torch.from_numpy(tokens)
        hidden = nn.functional.embedding(padded, self._embedding)
        return Logits(self._compute(Run(batch, tables), hidden, wanted)[: len(wanted)])

    def _compute(self, run: Run, hidden: Tensor, wanted: Sequence[int]) -> Tensor:
        """Logits (rows, vocabulary) of the wanted ones of embedded tokens (rows, width)."""
        added: Tensor | None = None
        turn, last = run.batch.turn, len(self._layers) - 1
        for number, layer in enumerate(self._layers):
            projected = run.multiply(layer.inward, run.normalize(layer.first, hidden, added))
            queries = run.rotate(number, layer, projected)
            del projected
            added = None  # a slice that waits for its turn holds no more than it has to
            if turn is not None:
                turn(number, ())
            if number == last and len(wanted) < run.batch.tokens:
                # No other token's states are read after this layer's keys and values.
                if not wanted:
                    return hidden.new_empty(0, self._head.outputs)
                hidden, queries = run.choose(hidden, queries, wanted)
                outputs = run.attend(number, layer, queries, wanted)
            else:
                outputs = run.attend(number, layer, queries)
            del queries
            added = run.multiply(layer.outward, outputs)
            del outputs
            normalized = run.normalize(layer.second, hidden, added)
            gated = run.gate(layer.gated, normalized, self._activation)
            added = run.multiply(layer.down, gated)
            del normalized, gated
        return run.multiply(self._head, run.normalize(self._last, hidden, added))

    def _angles(self, position: int) -> Tables:
        """Cosines and sines (positions, half) of a head's pairs, up to a position at least."""
        if position >= len(self._known_angles[0]):
            count = 1 << max(10, int(position).bit_length())
            at = torch.arange(count)[None]
            cosines, sines = self._rotary(torch.empty(0, dtype=torch.float32), at)
            half = cosines.shape[-1] // 2
            self._known_angles = (
                cosines[0, :, :half].contiguous(),
                sines[0, :, :half].contiguous(),
            )
        return self._known_angles


def _layer(layer: Any, options: AttentionOptions) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    width = attention.head_dim
    return Layer(
        attention.q_proj.out_features // width,
        attention.k_proj.out_features // width,
        width,
        _norm(layer.input_layernorm),
        pack([attention.q_proj, attention.k_proj, attention.v_proj]),
        _norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        _norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        pack([attention.o_proj]),
        _norm(layer.post_attention_layernorm),
        pack([mlp.gate_proj, mlp.up_proj]),
        pack([mlp.down_proj]),
        options,
    )


def _norm(norm: Any) -> Norm:
    return Norm(norm.weight.detach().float(), bits(norm.variance_epsilon))
