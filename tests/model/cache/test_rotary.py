"""Rotated queries replace moved keys."""

from __future__ import annotations

import pytest
import torch

from relquery.errors import ConfigError
from relquery.model.torch_runtime.cache import KVCache, RotaryEmbedding


@pytest.fixture(params=[False, True], ids=["halves", "interleaved"])
def rotary(request: pytest.FixtureRequest) -> RotaryEmbedding:
    """Six of the eight dimensions of a head."""
    return RotaryEmbedding(torch.tensor([1.0, 0.3, 0.01]), request.param)


def states(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_query_rotated_back_meets_a_key_that_began_at_zero(rotary: RotaryEmbedding) -> None:
    query, key = states(2, 5, 4, 8)
    for offset in (0, 1, 100, 5_000):
        at, from_start = torch.arange(offset + 10, offset + 15), torch.arange(5)
        placed = rotary.rotate(query, at)
        back = rotary.rotate(placed, torch.full((5,), -offset))
        moved, unmoved = (rotary.rotate(key, each) for each in (from_start + offset, from_start))
        scores = torch.einsum("qhd,khd->hqk", back, unmoved)
        expected = torch.einsum("qhd,khd->hqk", placed, moved)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)


def test_rotation_is_that_of_complex_numbers(rotary: RotaryEmbedding) -> None:
    head = states(8)
    first, second = (head[0:6:2], head[1:6:2]) if rotary.interleaved else (head[:3], head[3:6])
    turned = torch.polar(torch.ones(3), 4 * rotary.frequencies) * torch.complex(first, second)
    pair = torch.stack((turned.real, turned.imag), -1 if rotary.interleaved else 0)
    expected = torch.cat((pair.flatten(), head[6:]))
    torch.testing.assert_close(rotary.rotate(head.view(1, 1, 8), torch.tensor([4]))[0, 0], expected)


def test_no_distance_changes_nothing(rotary: RotaryEmbedding) -> None:
    assert torch.equal(rotary.rotate(states(3, 2, 8), torch.zeros(3).long()), states(3, 2, 8))


def test_dimensions_in_front_may_share_distances_or_have_their_own(rotary: RotaryEmbedding) -> None:
    batch = states(3, 5, 2, 8)  # jobs, tokens, heads, head_dim
    by = torch.tensor([-7, 0, 9])
    own = rotary.rotate(batch, by[:, None])
    for job in range(3):
        shared = rotary.rotate(batch[job], by[job].expand(5))
        torch.testing.assert_close(own[job], shared, rtol=0, atol=0)
    heads_first = rotary.rotate(batch.transpose(1, 2), by[:, None])
    torch.testing.assert_close(heads_first.transpose(1, 2), own, rtol=0, atol=0)


def test_states_keep_their_type_and_are_rounded_once(rotary: RotaryEmbedding) -> None:
    by = torch.tensor([1, 2, -3])
    for dtype in (torch.bfloat16, torch.float16):
        short = states(3, 2, 8).to(dtype)
        rotated = rotary.rotate(short, by)
        assert rotated.dtype == dtype
        assert torch.equal(rotated, rotary.rotate(short.float(), by).to(dtype))


def test_tables_live_as_long_as_the_distances_that_they_are_for(rotary: RotaryEmbedding) -> None:
    by = torch.tensor([1, 2, 3])
    rotary.rotate(states(3, 2, 8), by)
    assert len(rotary._tables) == 1
    del by
    assert len(rotary._tables) == 0


# ---- slots in, slots out


def test_what_is_written_last_to_a_slot_is_read_from_it_in_any_order() -> None:
    cache = KVCache(10)
    for _ in range(2):
        key, value = torch.randn(4, 2, 6).bfloat16(), torch.randn(4, 2, 3).bfloat16()
        cache.write(0, torch.tensor([7, 0, 3, 9]), key, value)
    got_key, got_value = cache.read(0, torch.tensor([9, 0, 3]))
    rows = torch.tensor([3, 1, 2])
    assert torch.equal(got_key, key[rows].transpose(0, 1))
    assert torch.equal(got_value, value[rows].transpose(0, 1))


def test_layers_are_apart_and_may_differ_in_shape() -> None:
    cache = KVCache(3)
    assert cache.layers == 0
    for layer, heads in ((0, 2), (5, 1)):
        states = torch.full((1, heads, 4), float(layer + 1))
        cache.write(layer, torch.tensor([0]), states, states)
    assert cache.layers == 2
    assert torch.unique(cache.read(0, torch.tensor([0]))[0]).tolist() == [1.0]
    assert torch.unique(cache.read(5, torch.tensor([0]))[0]).tolist() == [6.0]


def test_a_cache_that_no_memory_holds_is_refused_with_what_to_lower() -> None:
    states = torch.zeros(1, 2, 64)
    with pytest.raises(ConfigError, match="Lower cache_tokens"):
        KVCache(10**14).write(0, torch.zeros(1, dtype=torch.int64), states, states)
