"""Keys of spans at other positions, in whatever form a backend keeps them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from relquery.errors import ConfigError
from relquery.vllm.spans.connector import SpanConnector
from relquery.vllm.spans.requests import Copies
from relquery.vllm.spans.rotation import Copier, Rotary, key_places
from tests.engine.harness import for_each
from tests.vllm.fake import _ROPE_DICT, KVConnectorRole, RotaryEmbedding
from tests.vllm.test_spans import cache, config

HEADS, SIZE, BLOCK = 3, 16, 32


def embedding(width: int = SIZE, is_neox: bool = True, scale: float = 1.0) -> Any:
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


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda keys: keys.transpose(0, 1).flatten(1),
    "transposed": lambda keys: keys.permute(1, 2, 0).flatten(1),
    # Pairs of elements beside each other, as matrix units want them.
    "packed": lambda keys: keys.view(BLOCK, HEADS, SIZE // 2, 2).permute(1, 2, 0, 3).flatten(1),
}
"""(block, heads, size) as rows of a block, next to the values."""


class Layer:
    """A cache of (blocks, heads, block, 2 * size): keys in some form, then values. is_strided:
    heads lie outside blocks."""

    def __init__(self, form: str, dtype: torch.dtype, is_strided: bool = False) -> None:
        self.form = FORMS[form]
        outer = (HEADS, 9) if is_strided else (9, HEADS)
        made = torch.zeros(*outer, BLOCK, 2 * SIZE, dtype=dtype)
        self.cache = made.transpose(0, 1) if is_strided else made
        self.impl = self

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: Any, slots: Any
    ) -> None:
        assert layer is self
        for at, own in enumerate(slots.split(BLOCK)):
            keys, values = (each[at * BLOCK : (at + 1) * BLOCK] for each in (key, value))
            block = int(own[0]) // BLOCK
            assert own.tolist() == [*range(block * BLOCK, (block + 1) * BLOCK)]
            rows = torch.cat((self.form(keys), values.transpose(0, 1).flatten(1)), 1)
            kv_cache[block] = rows.view(HEADS, BLOCK, 2 * SIZE)

    def write(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Into blocks 1 and 2."""
        slots, dtype = torch.arange(BLOCK, 3 * BLOCK), self.cache.dtype
        self.do_kv_cache_update(self, keys.to(dtype), values.to(dtype), self.cache, slots)


@for_each("form", [*FORMS])
@for_each("is_strided", [False, True])
@for_each("dtype", [torch.float32, torch.bfloat16])
def test_blocks_are_copied_with_their_keys_moved(
    form: str, is_strided: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    layers = [Layer(form, dtype, is_strided) for _ in range(2)]
    given, expected, by, at = [], [], 640, torch.arange(2 * BLOCK)
    for layer in layers:
        keys, values = torch.randn(2, 2 * BLOCK, HEADS, SIZE)
        layer.write(turned(keys, at, SIZE, True), values)
        given.append(layer.cache.clone())
        after = Layer(form, dtype, is_strided)
        after.write(turned(keys, at + by, SIZE, True), values)
        expected.append(after.cache)
    first = layers[0]
    places = key_places(
        first.cache, HEADS, SIZE, BLOCK, lambda *to: first.do_kv_cache_update(first, *to)
    )
    copier = Copier([layer.cache for layer in layers], Rotary.of(embedding()), places)
    copier.copy([1, 2], [7, 5], [by, by])
    tolerance = 2e-4 if dtype == torch.float32 else 0.05
    for layer, before, wanted in zip(layers, given, expected, strict=True):
        found = layer.cache
        assert torch.allclose(found[[7, 5]].float(), wanted[[1, 2]].float(), atol=tolerance)
        untouched = [0, 1, 2, 3, 4, 6, 8]
        assert torch.equal(found[untouched], before[untouched])


def worker(layer: Layer, embeddings: list[Any], **of_model: Any) -> Any:
    _ROPE_DICT.clear()
    _ROPE_DICT.update({(at,): each for at, each in enumerate(embeddings)})
    settings = config()
    settings.model_config.hf_text_config = SimpleNamespace(**of_model)
    settings.compilation_config = SimpleNamespace(static_forward_context={"layer": layer})
    form = cache(9, block_size=BLOCK, num_kv_heads=HEADS, head_size=SIZE)
    return SpanConnector(settings, KVConnectorRole.WORKER, form)


def test_a_worker_copies_what_the_scheduler_says() -> None:
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
    layer.form = lambda keys: FORMS["plain"](keys) * (torch.arange(BLOCK * SIZE) > 3)
    with pytest.raises(ConfigError, match="do not know"):
        worker(layer, [embedding()]).register_kv_caches({"layer": layer.cache})
