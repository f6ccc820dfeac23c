"""Our own forward pass computes what the networks that it knows compute, and no others."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import gelu
from transformers import LlamaForCausalLM

from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.model.attention.batch import PackedBatch
from relquery.model.cache.device import KVCache
from relquery.model.forward import packed as weights_in_order
from relquery.model.forward.linear import PackedLinear, pack, pack_all, packed_bytes, packed_weights
from relquery.model.forward.llama import LlamaForward
from relquery.model.forward.packed import PackedWeight, can_pack, padded_rows
from relquery.model.forward.stock import StockForward
from relquery.model.kernels.rows import GELU_TANH, SILU
from relquery.model.networks.load import prepare
from relquery.model.networks.random import byte_tokenizer
from relquery.model.networks.stock import parameters
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    VOCABULARY,
    made,
    networks_of,
    prepared,
    varied,
)

LENGTH = 50
OURS, STOCK = networks_of("ours"), networks_of("stock")


def doubled() -> Any:
    """A network whose second layer does something of its own."""
    network = OURS["llama"]()
    mlp = network.model.layers[1].mlp
    forward = mlp.forward
    mlp.forward = lambda states: 2 * forward(states)
    return network


def quantized() -> Any:
    class Linear(torch.nn.Linear):
        pass

    network = OURS["llama"]()
    network.model.layers[0].mlp.down_proj.__class__ = Linear
    return network


STOCK |= {"a layer of its own": doubled, "not plain layers": quantized}


@pytest.mark.parametrize("name", OURS)
@torch.inference_mode()
def test_logits_are_those_of_the_network(name: str) -> None:
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, VOCABULARY, LENGTH))
    expected = varied(OURS[name])(ids[None], use_cache=False).logits[0]
    model = prepared(varied(OURS[name]))
    assert isinstance(model.forward, LlamaForward)
    for cuts in ((), (1,), (20, 21, 40)):
        slots = np.random.default_rng(0).permutation(LENGTH)
        slots[::2] = SCRATCH + slots[::2] if not cuts else slots[::2]
        cache, scratch = KVCache(LENGTH), KVCache(LENGTH)
        for start, stop in zip((0, *cuts), (*cuts, LENGTH), strict=True):
            context = (Segment(slots[:start]),) if start else ()
            chunk = Chunk(0, ids[start:stop].int().numpy(), start, context, slots[start:stop])
            batch = PackedBatch([chunk], cache, True, torch.device("cpu"), scratch=scratch)
            wanted = list(range(stop - start))[:: 1 + start % 2]
            logits = model.forward(ids[start:stop].numpy(), batch, wanted).rows
            size = float(expected.abs().max())
            assert float((logits - expected[start:stop][wanted]).abs().max()) < 2e-5 * size


@pytest.mark.parametrize("name", STOCK)
def test_other_networks_keep_their_own(name: str) -> None:
    """Without a warning, but for the one that only its logits tell from a Llama."""
    is_told = name == "a layer of its own"
    with pytest.warns(UserWarning, match="gives other logits") if is_told else nullcontext():
        assert isinstance(prepared(varied(STOCK[name])).forward, StockForward)


@torch.inference_mode()
def test_the_network_still_computes_by_itself() -> None:
    ids = torch.arange(3, 20)[None]
    expected = varied(OURS["qwen2"])(ids).logits
    network: Any = prepared(varied(OURS["qwen2"])).network
    network.set_attn_implementation("eager")
    torch.testing.assert_close(network(ids).logits, expected, rtol=1e-4, atol=1e-4)


# ---- packed linear layers

PACKED = [torch.float32, torch.bfloat16]


def layers(dtype: torch.dtype, biases: tuple[bool, ...]) -> list[nn.Linear]:
    torch.manual_seed(len(biases))
    made = [nn.Linear(40, 24 + 8 * i, bias=bias) for i, bias in enumerate(biases)]
    return [each.to(dtype) for each in made]


@pytest.fixture(params=[True, False])
def with_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMX where the machine has it, and without it."""
    if not request.param:
        monkeypatch.setattr(weights_in_order, "has_tiles", lambda: False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@torch.inference_mode()
def test_products_are_those_of_the_plain_layers(dtype: torch.dtype) -> None:
    for biases in ((False,), (True,), (True, False, True), (False, False)):
        plain, again = layers(dtype, biases), layers(dtype, biases)
        packed, room = pack(plain), 4 * torch.finfo(dtype).eps
        for rows in ((1,), (3,), (2, 33)):
            states = torch.randn(*rows, 40, dtype=dtype)
            expected = [layer(states) for layer in again]
            torch.testing.assert_close(
                packed(states), torch.cat(expected, -1), rtol=room, atol=room
            )
            for layer, product, stock in zip(plain, expected, again, strict=True):
                assert isinstance(layer, PackedLinear)
                torch.testing.assert_close(layer(states), product, rtol=room, atol=room)
                assert torch.equal(layer.weight, stock.weight)
                assert "weight" not in dict(layer.named_parameters())


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize(
    ("inputs", "outputs", "bias"),
    [
        (96, 64, True),
        *(
            pytest.param(*shape, marks=pytest.mark.long)
            for shape in [(40, 320, True), (41, 64, False), (96, 320, False), (300, 64, True)]
        ),
    ],
)
@pytest.mark.usefixtures("with_tiles")
@torch.inference_mode()
def test_products_of_few_rows_have_a_kernel_of_their_own(
    dtype: torch.dtype, inputs: int, outputs: int, bias: bool
) -> None:
    torch.manual_seed(inputs)
    layer = nn.Linear(inputs, outputs, bias=bias).to(dtype)
    weight, plain = layer.weight.double(), layer.bias.double() if bias else None
    packed = pack([layer])
    room = torch.finfo(dtype).eps
    for count in (1, 2, 3, 4, 7, 16, 17, 32, 33, 48, 64, 65):
        rows = torch.randn(count, 2 * inputs, dtype=dtype)[:, ::2]  # with gaps in memory
        expected = nn.functional.linear(rows.double(), weight, plain)
        torch.testing.assert_close(
            packed(rows).double(), expected, rtol=4 * room, atol=room * inputs**0.5
        )


@pytest.mark.long
@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("activation", [SILU, GELU_TANH])
@pytest.mark.parametrize(("inputs", "bias"), [(40, True), (96, False), (1_088, True)])
@pytest.mark.usefixtures("with_tiles")
@torch.inference_mode()
def test_gated_products_are_the_products_gated_afterwards(
    dtype: torch.dtype, activation: int, inputs: int, bias: bool
) -> None:
    torch.manual_seed(inputs)
    layer = nn.Linear(inputs, 2 * 192, bias=bias).to(dtype)
    packed = pack([layer])
    function = nn.functional.silu if activation == SILU else partial(gelu, approximate="tanh")
    room = 4 * torch.finfo(dtype).eps
    for count in (1, 2, 5, 16, 17, 32, 33, 48, 64):
        rows = torch.randn(count, inputs).to(dtype)
        if not packed.gates(count):
            continue
        gates, ups = packed(rows).chunk(2, -1)
        expected = function(gates.float()).to(dtype) * ups
        torch.testing.assert_close(packed.gated(rows, activation), expected, rtol=room, atol=room)
    assert packed.gates(64) == (can_pack(rows) and packed.is_ours)
    assert not pack([nn.Linear(inputs, 80).to(dtype)]).gates(4)  # no whole panels


@pytest.mark.long
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(64, 40), (64, 301), (100, 2), (1, 40), (1, 301), (193, 2), (193, 301)]
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("is_fast", [False, True])
@torch.inference_mode()
def test_our_own_kernel_computes_all_products_where_the_processor_has_no_bfloat16(
    monkeypatch: pytest.MonkeyPatch, outputs: int, inputs: int, bias: bool, is_fast: bool
) -> None:
    monkeypatch.setattr(weights_in_order, "has_pairs", lambda: is_fast)
    torch.manual_seed(outputs)
    weight = torch.randn(outputs, inputs).bfloat16()
    biases = torch.randn(outputs).bfloat16() if bias else None
    packed = PackedWeight(weight, biases)
    assert torch.equal(packed.dense(), weight)
    assert packed.is_ours or is_fast or inputs % 2
    assert packed.nbytes >= weight.nbytes
    added = 0 if biases is None else biases.double()
    for shape in [(1,), (65,), (2, 1, 7), (3, 50), (200,), (0,), (2, 0)]:
        rows = torch.randn(*shape, inputs).bfloat16()
        expected = rows.double() @ weight.double().T + added
        torch.testing.assert_close(
            packed(rows).double(), expected, rtol=2**-7, atol=2**-8 * inputs**0.5
        )


def test_a_network_packs_plain_linear_layers_alone() -> None:
    class Other(nn.Linear):
        pass

    exact = nn.Sequential(nn.Linear(8, 8, dtype=torch.float64))
    pack_all(exact)
    assert type(exact[0]) is nn.Linear, "of float64, none"
    inner = nn.Sequential(nn.Linear(8, 4, bias=False))
    network = nn.Sequential(nn.Linear(8, 8), Other(8, 8), inner)
    states = torch.randn(5, 8)
    expected = deepcopy(network)(states)
    pack_all(network)
    kinds = [type(each) for each in (network[0], network[1], inner[0])]
    assert kinds == ([PackedLinear, Other, PackedLinear] if can_pack(states) else kinds)
    torch.testing.assert_close(network(states), expected)
    if can_pack(states):
        assert packed_bytes(network) == 4 * (64 + 32)
        assert sum(each.count for each in packed_weights(network)) == 64 + 32


def test_rows_are_padded_to_few_different_numbers() -> None:
    assert [padded_rows(rows) for rows in (0, 1, 3, 16, 17, 65, 257)] == [0, 1, 4, 16, 20, 80, 272]
    assert all(rows <= padded_rows(rows) <= rows + max(rows / 16, 15) for rows in range(5_000))
    assert len({padded_rows(rows) for rows in range(1, 4_097)}) == 94


def tiny(tied: bool) -> LlamaForCausalLM:
    built = made("Llama", LLAMA_LIKE, vocab_size=300, tie_word_embeddings=tied)()
    return cast(LlamaForCausalLM, built)


@pytest.mark.parametrize("tied", [False, True])
def test_packed_networks_have_the_parameters_that_they_had(tied: bool) -> None:
    network = tiny(tied)
    before = parameters(network)
    prepare(network, byte_tokenizer(), "tiny")
    assert parameters(network) == before


@pytest.mark.parametrize(("tied", "dtype"), [(False, "float32"), (True, "bfloat16")])
def test_a_packed_network_can_be_saved(tied: bool, dtype: str, tmp_path: Path) -> None:
    network = tiny(tied).to(getattr(torch, dtype))
    expected = {name: one.clone() for name, one in network.state_dict().items()}
    packed = prepare(network, byte_tokenizer(), "tiny").network
    assert packed.state_dict().keys() == expected.keys()
    packed.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(again[name], one) for name, one in expected.items())
