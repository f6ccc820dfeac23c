"""Keys of spans at other positions, in whatever form a backend keeps them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from relquery.errors import ConfigError
from relquery.vllm.spans.rotation import Copier, Rotary, key_places
from tests.engine.harness import for_each
from tests.vllm.test_spans import cache, config

pytestmark = pytest.mark.usefixtures("stubs")
HEADS, SIZE, BLOCK = 3, 16, 32


def embedding(width: int = SIZE, is_neox: bool = True, scale: float = 1.0) -> Any:
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding

    return RotaryEmbedding(width, 4_096, 10_000.0, is_neox, scale)


def turned(keys: torch.Tensor, positions: torch.Tensor, width: int, is_neox: bool) -> torch.Tensor:
    """Keys at positions from their definition: complex numbers times unit numbers. (n, h, size)."""
    steps = torch.arange(0, width, 2, dtype=torch.float64) / width
    angle = positions.double()[:, None] / 10_000.0**steps
    unit = torch.polar(torch.ones_like(angle), angle)[:, None]
    moved, rest = keys[..., :width].double(), keys[..., width:].double()
    if is_neox:
        pairs = torch.complex(*moved.chunk(2, -1)) * unit
        found = torch.cat((pairs.real, pairs.imag), -1)
    else:
        pairs = torch.complex(moved[..., ::2], moved[..., 1::2]) * unit
        found = torch.stack((pairs.real, pairs.imag), -1).flatten(-2)
    return torch.cat((found, rest), -1)


@for_each("is_neox", [True, False])
@for_each("width", [SIZE, SIZE // 2])
def test_rotating_moves_keys_to_later_positions(is_neox: bool, width: int) -> None:
    torch.manual_seed(0)
    keys = torch.randn(50, HEADS, SIZE)
    at, by = torch.randint(0, 2_000, (50,)), torch.randint(0, 2_000, (50,))
    rotary = Rotary.of(embedding(width, is_neox))
    found = rotary.rotated(turned(keys, at, width, is_neox).float(), by)
    expected = turned(keys, at + by, width, is_neox)
    assert torch.allclose(found.double(), expected, atol=2e-4)


def test_positions_that_are_no_rotation_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be moved"):
        Rotary.of(embedding(scale=1.2))


def plain(keys: torch.Tensor) -> torch.Tensor:
    """(block, heads, size) as rows of a block, next to the values."""
    return keys.transpose(0, 1).flatten(1)


def transposed(keys: torch.Tensor) -> torch.Tensor:
    return keys.permute(1, 2, 0).flatten(1)


def packed(keys: torch.Tensor) -> torch.Tensor:
    """Pairs of elements beside each other, as matrix units want them."""
    return keys.view(BLOCK, HEADS, SIZE // 2, 2).permute(1, 2, 0, 3).flatten(1)


FORMS = {"plain": plain, "transposed": transposed, "packed": packed}


class Layer:
    """A cache of (blocks, heads, block, 2 * size): keys in some form, then values. is_strided:
    heads lie outside blocks."""

    def __init__(self, form: str, dtype: torch.dtype, is_strided: bool = False) -> None:
        self.form = FORMS[form]
        shape = (9, HEADS, BLOCK, 2 * SIZE)
        if is_strided:
            self.cache = torch.zeros(HEADS, 9, BLOCK, 2 * SIZE, dtype=dtype).transpose(0, 1)
        else:
            self.cache = torch.zeros(shape, dtype=dtype)
        self.impl = self

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: Any, slots: Any
    ) -> None:
        assert layer is self
        for start in range(0, len(slots), BLOCK):
            block = int(slots[start]) // BLOCK
            assert slots[start : start + BLOCK].tolist() == [
                *range(block * BLOCK, (block + 1) * BLOCK)
            ]
            keys = self.form(key[start : start + BLOCK])
            values = value[start : start + BLOCK].transpose(0, 1).flatten(1)
            kv_cache[block] = torch.cat((keys, values), 1).view(HEADS, BLOCK, 2 * SIZE)


@for_each("form", [*FORMS])
@for_each("is_strided", [False, True])
@for_each("dtype", [torch.float32, torch.bfloat16])
def test_blocks_are_copied_with_their_keys_moved(
    form: str, is_strided: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    layers = [Layer(form, dtype, is_strided) for _ in range(2)]
    given, expected = [], []
    by = 640
    for layer in layers:
        keys, values = torch.randn(2, 2 * BLOCK, HEADS, SIZE)
        at = torch.arange(2 * BLOCK)
        slots = torch.arange(BLOCK, 3 * BLOCK)
        first = turned(keys, at, SIZE, True).to(dtype)
        layer.do_kv_cache_update(layer, first, values.to(dtype), layer.cache, slots)
        given.append(layer.cache.clone())
        after = Layer(form, dtype, is_strided)
        after.do_kv_cache_update(
            after, turned(keys, at + by, SIZE, True).to(dtype), values.to(dtype), after.cache, slots
        )
        expected.append(after.cache)
    places = key_places(
        layers[0].cache, HEADS, SIZE, BLOCK,
        lambda *to: layers[0].do_kv_cache_update(layers[0], *to),
    )  # fmt: skip
    copier = Copier([layer.cache for layer in layers], Rotary.of(embedding()), places)
    copier.copy([1, 2], [7, 5], [by, by])
    tolerance = 2e-4 if dtype == torch.float32 else 0.05
    for layer, before, wanted in zip(layers, given, expected, strict=True):
        found = layer.cache
        assert torch.allclose(found[7].float(), wanted[1].float(), atol=tolerance)
        assert torch.allclose(found[5].float(), wanted[2].float(), atol=tolerance)
        untouched = [0, 1, 2, 3, 4, 6, 8]
        assert torch.equal(found[untouched], before[untouched])


def worker(layer: Layer, embeddings: list[Any], **of_model: Any) -> Any:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.model_executor.layers.rotary_embedding import _ROPE_DICT

    from relquery.vllm.spans import SpanConnector

    _ROPE_DICT.clear()
    _ROPE_DICT.update({(at,): each for at, each in enumerate(embeddings)})
    settings = config()
    settings.model_config.hf_text_config = SimpleNamespace(**of_model)
    settings.compilation_config = SimpleNamespace(static_forward_context={"layer": layer})
    form = cache(9, block_size=BLOCK, num_kv_heads=HEADS, head_size=SIZE)
    return SpanConnector(settings, KVConnectorRole.WORKER, form)


def test_a_worker_copies_what_the_scheduler_says() -> None:
    from relquery.vllm.spans.requests import Copies

    layer = Layer("transposed", torch.float32)
    shared = embedding()
    connector = worker(layer, [shared, shared])
    connector.register_kv_caches({"layer": layer.cache})
    layer.cache[1] = torch.randn_like(layer.cache[1])
    connector.bind_connector_metadata(Copies([1], [4], [0], {6}))
    connector.start_load_kv(None)
    assert torch.allclose(layer.cache[4], layer.cache[1], atol=1e-6)  # by 0 positions
    assert connector.get_block_ids_with_load_errors() == {6}
    assert connector.get_block_ids_with_load_errors() == set()


def test_models_whose_keys_cannot_be_moved_are_refused() -> None:
    layer = Layer("plain", torch.float32)
    for embeddings in ([], [embedding(), embedding(SIZE // 2)]):
        with pytest.raises(ConfigError, match="one rotary position embedding"):
            worker(layer, embeddings).register_kv_caches({"layer": layer.cache})
    with pytest.raises(ConfigError, match="keys of all layers"):
        worker(layer, [embedding()], no_rope_layers=[1, 0]).register_kv_caches(
            {"layer": layer.cache}
        )


def test_a_form_that_loses_keys_is_refused() -> None:
    layer = Layer("plain", torch.float32)
    layer.form = lambda keys: plain(keys) * (torch.arange(BLOCK * SIZE) > 3)
    with pytest.raises(ConfigError, match="do not know"):
        worker(layer, [embedding()]).register_kv_caches({"layer": layer.cache})
