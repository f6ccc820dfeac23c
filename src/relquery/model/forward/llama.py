"""Our own forward pass on a CPU, for Llama and networks that compute like it.

`transformers` runs some thirty operators a layer; their overhead is most of the time where few
tokens are computed. Here a layer is four matrix products with packed weights, one pass over the
rows between each two of them, and attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from relquery.engine.executor import SCRATCH
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.function import AttentionOptions
from relquery.model.forward.linear import PackedWeight, pack, padded_rows
from relquery.model.kernels import elementwise
from relquery.model.kernels import rows as kernel
from relquery.model.kernels.arguments import KINDS, Arguments, bits, places
from relquery.model.kernels.threads import Body, threads

KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Networks whose layers compute as ours do."""
FIXED = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embeddings whose frequencies do not change with the length."""
ACTIVATIONS = {
    "silu": elementwise.SILU,
    "swish": elementwise.SILU,
    "gelu_pytorch_tanh": elementwise.GELU_TANH,
}
ALONE = 1 << 15
"""Numbers that one thread goes through sooner than several begin."""


def knows(network: PreTrainedModel) -> bool:
    """Whether this forward pass can be used in place of the network's own."""
    if type(network) not in KNOWN or network.device.type != "cpu" or network.dtype not in KINDS:
        return False
    config = network.config
    linears = [each for each in network.modules() if isinstance(each, nn.Linear)]
    return (
        config.hidden_act in ACTIVATIONS
        and cast(Any, network).model.rotary_emb.rope_type in FIXED
        and all(type(each) is nn.Linear for each in linears)  # not quantized, no adapters
        and len({each.dtype for each in network.parameters()}) == 1
    )


@dataclass(frozen=True, slots=True)
class _Norm:
    """weight: (width,) in float32. epsilon: the bits of one."""

    weight: Tensor
    epsilon: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """inward: queries, keys and values. outward: of attention. gated: gate and up.

    heads, kv_heads, width: of attention.
    """

    heads: int
    kv_heads: int
    width: int
    first: _Norm
    inward: PackedWeight
    query: _Norm | None
    key: _Norm | None
    outward: PackedWeight
    second: _Norm
    gated: PackedWeight
    down: PackedWeight
    options: AttentionOptions


class LlamaForward:
    """The forward pass of a network that `knows` recognizes. See Forward.

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

    def __call__(self, tokens: Int64s, batch: PackedBatch, wanted: Sequence[int]) -> Tensor:
        """See Forward."""
        run = _Run(batch, *self._angles(int(batch.positions.max())))
        padded = torch.zeros(padded_rows(len(tokens)), dtype=torch.long)
        padded[: len(tokens)] = torch.from_numpy(tokens)
        hidden = nn.functional.embedding(padded, self._embedding)
        added: Tensor | None = None
        last = len(self._layers) - 1
        for number, layer in enumerate(self._layers):
            projected = layer.inward(run.normalize(layer.first, hidden, added))
            queries = run.rotate(number, layer, projected)
            del projected
            if batch.turn is not None:
                batch.turn(number, ())
            if number == last and not wanted:
                return hidden.new_empty(0, self._head.outputs)
            outputs = run.attend(number, layer, queries)
            del queries
            if number == last and len(wanted) < batch.tokens:  # nothing more mixes tokens
                chosen = torch.zeros(padded_rows(len(wanted)), dtype=torch.long)
                chosen[: len(wanted)] = torch.tensor(wanted)
                hidden, outputs = hidden[chosen], outputs[chosen]
            added = layer.outward(outputs)
            del outputs
            gated = layer.gated(run.normalize(layer.second, hidden, added))
            gated = run.activate(gated, self._activation)
            added = layer.down(gated)
            del gated
        return self._head(run.normalize(self._last, hidden, added))[: len(wanted)]

    def _angles(self, position: int) -> tuple[Tensor, Tensor]:
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


class _Run:
    """What a forward pass computes between its matrix products.

    cosines, sines: (positions, half), as the network's rotary embedding gives them.
    """

    def __init__(self, batch: PackedBatch, cosines: Tensor, sines: Tensor) -> None:
        self.batch = batch
        self._tables = cosines, sines
        self._slots, self._positions = batch.slots, batch.positions
        self._a = a = Arguments(kernel.ARGUMENTS)
        a[kernel.COSINES], a[kernel.SINES] = cosines.data_ptr(), sines.data_ptr()
        a[kernel.HALF] = cosines.shape[1]
        a[kernel.SLOTS] = batch.slots.ctypes.data
        a[kernel.POSITIONS] = batch.positions.ctypes.data
        a[kernel.SCRATCH_FROM] = SCRATCH

    def normalize(self, norm: _Norm, hidden: Tensor, added: Tensor | None) -> Tensor:
        """Normalized rows (rows, width) of the hidden states, to which `added` is added first."""
        a, result = self._a, torch.empty_like(hidden)
        a[kernel.ADDED] = 0 if added is None else added.data_ptr()
        a[kernel.WEIGHT], a[kernel.EPSILON] = norm.weight.data_ptr(), norm.epsilon
        self._go_through(kernel.NORMALIZE, hidden, result, hidden.shape[1])
        return result

    def rotate(self, number: int, layer: _Layer, projected: Tensor) -> Tensor:
        """Rotated queries (rows, heads, width); stores the rotated keys, and the values."""
        a, batch = self._a, self.batch
        heads, kv_heads, width = layer.heads, layer.kv_heads, layer.width
        rows = projected.shape[0]
        by_head = projected.view(rows, heads + 2 * kv_heads, width)[: batch.tokens]
        keys, values = by_head[:, heads : heads + kv_heads], by_head[:, heads + kv_heads :]
        stored, own = batch.prepare(number, keys, values)
        a[kernel.KEYS], a[kernel.VALUES], a[kernel.STORE] = places(stored)
        a[kernel.OWN_KEYS], a[kernel.OWN_VALUES], a[kernel.OWN_STORE] = places(own)
        a[kernel.HEADS], a[kernel.KV_HEADS] = heads, kv_heads
        a[kernel.QUERY_WEIGHT] = a[kernel.KEY_WEIGHT] = 0
        if layer.query is not None and layer.key is not None:
            a[kernel.QUERY_WEIGHT] = layer.query.weight.data_ptr()
            a[kernel.KEY_WEIGHT] = layer.key.weight.data_ptr()
            a[kernel.EPSILON] = layer.query.epsilon
        queries = projected.new_empty(rows, heads, width)
        self._go_through(kernel.ROTATE, by_head, queries, projected.shape[1])
        batch.end_write(number, keys, values)
        return queries

    def attend(self, number: int, layer: _Layer, queries: Tensor) -> Tensor:
        """Outputs (rows, heads * width) of a layer's attention."""
        outputs, tokens = torch.empty_like(queries), self.batch.tokens
        outputs[tokens:] = 0
        options = layer.options
        self.batch.attend(
            number,
            queries[:tokens],
            scale=options.scale,
            window=options.window,
            softcap=options.softcap,
            out=outputs,
        )
        return outputs.flatten(1)

    def activate(self, gated: Tensor, activation: int) -> Tensor:
        """activation(gate) * up (rows, width) of gate and up (rows, 2 * width)."""
        width = gated.shape[1] // 2
        self._a[kernel.ACTIVATION] = activation
        result = gated.new_empty(gated.shape[0], width)
        self._go_through(kernel.ACTIVATE, gated, result, width)
        return result

    def _go_through(self, body: Body, source: Tensor, result: Tensor, width: int) -> None:
        a = self._a
        workers = threads() if source.numel() >= ALONE else 1
        work = torch.empty(workers * kernel.work_bytes(width), dtype=torch.uint8)
        a[kernel.KIND], a[kernel.ROWS], a[kernel.WIDTH] = (
            KINDS[source.dtype],
            source.shape[0],
            width,
        )
        a[kernel.SOURCE], a[kernel.RESULT] = source.data_ptr(), result.data_ptr()
        a[kernel.WORK], a[kernel.NEXT], a[kernel.TICKET] = work.data_ptr(), 0, 0
        body.run(a, workers)


def _layer(layer: Any, options: AttentionOptions) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    width = attention.head_dim
    return _Layer(
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


def _norm(norm: Any) -> _Norm:
    return _Norm(norm.weight.detach().float(), bits(norm.variance_epsilon))
