"""The KV cache: slots in, slots out, per layer."""

from __future__ import annotations

import pytest
import torch

from relquery.errors import ConfigError
from relquery.model.cache.device import KVCache


def test_what_is_written_to_a_slot_is_read_from_it_in_any_arrangement() -> None:
    cache = KVCache(10)
    key, value = torch.randn(4, 2, 3), torch.randn(4, 2, 3)
    cache.write(0, torch.tensor([7, 0, 3, 9]), key, value)
    got_key, got_value = cache.read(0, torch.tensor([[9, 0], [3, 3]]))
    assert got_key.shape == (2, 2, 2, 3)
    assert torch.equal(got_key, key[torch.tensor([[3, 1], [2, 2]])])
    assert torch.equal(got_value, value[torch.tensor([[3, 1], [2, 2]])])


def test_a_later_write_replaces_an_earlier_one() -> None:
    cache = KVCache(2)
    for fill in (1.0, 2.0):
        states = torch.full((1, 1, 4), fill)
        cache.write(0, torch.tensor([1]), states, -states)
    key, value = cache.read(0, torch.tensor([[1]]))
    assert torch.unique(key).tolist() == [2.0]
    assert torch.unique(value).tolist() == [-2.0]


def test_layers_are_apart_and_may_differ_in_shape() -> None:
    cache = KVCache(3)
    assert cache.layers == 0
    for layer, heads in ((0, 2), (5, 1)):
        states = torch.full((1, heads, 4), float(layer + 1))
        cache.write(layer, torch.tensor([0]), states, states)
    assert cache.layers == 2
    assert torch.unique(cache.read(0, torch.tensor([[0]]))[0]).tolist() == [1.0]
    assert torch.unique(cache.read(5, torch.tensor([[0]]))[0]).tolist() == [6.0]


def test_keys_and_values_may_differ_in_width_and_keep_their_type() -> None:
    cache = KVCache(3)
    key, value = torch.randn(1, 2, 6).bfloat16(), torch.randn(1, 2, 4).bfloat16()
    cache.write(0, torch.tensor([2]), key, value)
    got_key, got_value = cache.read(0, torch.tensor([[2]]))
    assert torch.equal(got_key[0], key)
    assert torch.equal(got_value[0], value)


def test_a_cache_that_no_memory_holds_is_refused_with_what_to_lower() -> None:
    states = torch.zeros(1, 2, 64)
    with pytest.raises(ConfigError, match="Lower cache_tokens"):
        KVCache(10**14).write(0, torch.zeros(1, dtype=torch.int64), states, states)
