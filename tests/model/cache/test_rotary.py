"""Rotated queries replace moved keys."""

from __future__ import annotations

import pytest
import torch

from relquery.model.cache.rotary import Rotary


@pytest.fixture(params=[False, True], ids=["halves", "interleaved"])
def rotary(request: pytest.FixtureRequest) -> Rotary:
    """Six of the eight dimensions of a head."""
    return Rotary(torch.tensor([1.0, 0.3, 0.01]), request.param)


def states(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_query_rotated_back_meets_a_key_that_began_at_zero(rotary: Rotary) -> None:
    query, key = states(2, 5, 4, 8)
    for offset in (0, 1, 100, 5_000):
        at, from_start = torch.arange(offset + 10, offset + 15), torch.arange(5)
        placed = rotary.rotate(query, at)
        back = rotary.rotate(placed, torch.full((5,), -offset))
        moved, unmoved = (rotary.rotate(key, each) for each in (from_start + offset, from_start))
        scores = torch.einsum("qhd,khd->hqk", back, unmoved)
        expected = torch.einsum("qhd,khd->hqk", placed, moved)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)


def test_rotation_is_that_of_complex_numbers(rotary: Rotary) -> None:
    head = states(8)
    first, second = (head[0:6:2], head[1:6:2]) if rotary.interleaved else (head[:3], head[3:6])
    turned = torch.polar(torch.ones(3), 4 * rotary.frequencies) * torch.complex(first, second)
    pair = torch.stack((turned.real, turned.imag), -1 if rotary.interleaved else 0)
    expected = torch.cat((pair.flatten(), head[6:]))
    torch.testing.assert_close(rotary.rotate(head.view(1, 1, 8), torch.tensor([4]))[0, 0], expected)


def test_no_distance_changes_nothing(rotary: Rotary) -> None:
    assert torch.equal(rotary.rotate(states(3, 2, 8), torch.zeros(3).long()), states(3, 2, 8))


def test_dimensions_in_front_may_share_distances_or_have_their_own(rotary: Rotary) -> None:
    batch = states(3, 5, 2, 8)  # jobs, tokens, heads, head_dim
    by = torch.tensor([-7, 0, 9])
    own = rotary.rotate(batch, by[:, None])
    for job in range(3):
        shared = rotary.rotate(batch[job], by[job].expand(5))
        torch.testing.assert_close(own[job], shared, rtol=0, atol=0)
    heads_first = rotary.rotate(batch.transpose(1, 2), by[:, None])
    torch.testing.assert_close(heads_first.transpose(1, 2), own, rtol=0, atol=0)


def test_states_keep_their_type_and_are_rounded_once(rotary: Rotary) -> None:
    by = torch.tensor([1, 2, -3])
    for dtype in (torch.bfloat16, torch.float16):
        short = states(3, 2, 8).to(dtype)
        rotated = rotary.rotate(short, by)
        assert rotated.dtype == dtype
        assert torch.equal(rotated, rotary.rotate(short.float(), by).to(dtype))


def test_tables_live_as_long_as_the_distances_that_they_are_for(rotary: Rotary) -> None:
    by = torch.tensor([1, 2, 3])
    rotary.rotate(states(3, 2, 8), by)
    assert len(rotary._tables) == 1
    del by
    assert len(rotary._tables) == 0
