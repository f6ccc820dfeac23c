"""From logits to token ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from relquery.engine.request.request import Draw
from relquery.model import sampling
from relquery.model.forward.stock import Logits
from relquery.model.sampling import draw_tokens, follow_draws, weigh_tokens

DRAWS = 2000


def logits_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def drawn(logits: Tensor, draw: Draw, count: int = DRAWS) -> Counter[int]:
    """How often each token is drawn, over as many seeds."""
    draws = [
        Draw(draw.temperature, draw.top_p, draw.top_k, seed, draw.allowed) for seed in range(count)
    ]
    return Counter(draw_tokens(logits.expand(count, -1).clone(), draws))


def random_logits(rows: int, vocabulary: int = 50) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(1)) * 2


def test_greedy_takes_the_likeliest_allowed_token_of_each_row() -> None:
    logits = random_logits(9)
    likeliest = logits.argmax(-1).tolist()
    assert draw_tokens(logits.clone(), [Draw()] * 9) == likeliest
    assert draw_tokens(logits.bfloat16(), [Draw()] * 9) == logits.bfloat16().argmax(-1).tolist()
    for allowed in [(3,), (0, 49), (5, 6, 7, 8)]:
        best = [allowed[int(row[list(allowed)].argmax())] for row in logits]
        assert draw_tokens(logits.clone(), [Draw(allowed=allowed)] * 9) == best
    one_free = [Draw(allowed=(4,)), Draw()]
    assert draw_tokens(logits[:2].clone(), one_free) == [4, likeliest[1]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_their_tempered_probability_says(temperature: float) -> None:
    probabilities = (0.5, 0.25, 0.15, 0.1)
    tempered = [p ** (1 / temperature) for p in probabilities]
    counts = drawn(logits_of(*probabilities), Draw(temperature))
    for token, weight in enumerate(tempered):
        assert counts[token] / DRAWS == pytest.approx(weight / sum(tempered), abs=0.04)


@pytest.mark.parametrize(
    ("draw", "support"),
    [
        (Draw(1.0, top_k=2), {1, 3}),
        (Draw(1.0, top_p=0.01), {1}),
        (Draw(1.0, top_p=0.39), {1}),
        (Draw(1.0, top_p=0.45), {1, 3}),
        (Draw(1.0, top_p=0.75), {1, 2, 3}),
        (Draw(1.0, top_p=0.95), {0, 1, 2, 3}),
        # Of 0.4 and 0.3 alone the likelier has 4/7 of the mass, which is more than 0.5.
        (Draw(1.0, top_k=2, top_p=0.5), {1}),
        (Draw(1.0, top_k=2, top_p=0.6), {1, 3}),
        (Draw(2.0, allowed=(0, 2)), {0, 2}),
        (Draw(1.0, top_k=2, allowed=(0, 2, 3)), {2, 3}),
        (Draw(1.0, top_p=0.5, allowed=(0, 2)), {2}),
    ],
)
def test_top_k_and_top_p_leave_the_likeliest_of_the_allowed_tokens_at_their_relative_frequency(
    draw: Draw, support: set[int]
) -> None:
    probabilities = (0.1, 0.4, 0.2, 0.3)
    counts = drawn(logits_of(*probabilities), draw)
    assert set(counts) == support
    tempered = {token: probabilities[token] ** (1 / draw.temperature) for token in support}
    for token, weight in tempered.items():
        assert counts[token] / DRAWS == pytest.approx(weight / sum(tempered.values()), abs=0.04)


def test_the_same_seed_draws_the_same_token_and_other_seeds_others() -> None:
    logits = torch.zeros(1000)
    assert len(drawn(logits, Draw(1.0), 50)) > 40
    assert drawn(logits, Draw(1.0), 50) == drawn(logits, Draw(1.0), 50)
    draws = [Draw(1.0, seed=seed) for seed in (-1, 2**70, -(2**63))]
    rows = torch.zeros(3, 1000)
    assert draw_tokens(rows.clone(), draws) == draw_tokens(rows.clone(), draws)


def test_the_global_random_state_is_neither_read_nor_changed() -> None:
    logits = torch.zeros(1, 1000)
    torch.manual_seed(1)
    first = draw_tokens(logits.clone(), [Draw(1.0, seed=5)])
    following = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(following, torch.rand(1))
    assert draw_tokens(logits.clone(), [Draw(1.0, seed=5)]) == first


MIXED = [
    Draw(),
    Draw(1.0, seed=1),
    Draw(0.7, top_p=0.8, seed=2),
    Draw(1.5, top_k=3, seed=3),
    Draw(allowed=(1, 2)),
    Draw(2.0, seed=4, allowed=(7, 8, 9)),
]


def test_the_draw_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    logits = random_logits(len(MIXED))
    alone = [draw_tokens(logits[i : i + 1].clone(), [draw])[0] for i, draw in enumerate(MIXED)]
    order = [4, 2, 0, 5, 3, 1]
    together = draw_tokens(logits[order].clone(), [MIXED[i] for i in order])
    assert together == [alone[i] for i in order]


def test_a_neighbour_that_truncates_hides_no_token_of_a_row_that_does_not() -> None:
    # Rounded, the mass before the last token is 1: that must not count as beyond top_p = 1.
    logits = torch.tensor([[0.0, -20.0], [0.0, -20.0]])
    kept = sampling._truncate(logits, [Draw(1.0), Draw(1.0, top_p=0.5)])
    assert kept.tolist() == [[0.0, -20.0], [0.0, -torch.inf]]


COLD = [1e-6, 1e-30, 1e-38, 5e-324]


def test_next_to_nothing_is_greedy() -> None:
    logits = random_logits(20)
    for coldest in (*map(Draw, COLD), Draw(1.0, top_p=1e-300), Draw(1.0, top_k=1)):
        draws = [replace(coldest, seed=seed) for seed in range(20)]
        assert draw_tokens(logits.clone(), draws) == logits.argmax(-1).tolist(), coldest


@pytest.mark.parametrize("hottest", [1e300, 10**300])
def test_the_hottest_draw_is_uniform_and_leaves_its_neighbour_alone(hottest: float) -> None:
    logits = random_logits(1, 4)
    counts = drawn(logits, Draw(hottest, top_k=2**70))
    assert min(counts.values()) > 0.2 * DRAWS
    alone = draw_tokens(logits.clone(), [Draw(1.0, seed=3)])
    assert draw_tokens(logits.repeat(2, 1), [Draw(1.0, seed=3), Draw(hottest)])[:1] == alone


# ---- weights


def test_allowed_tokens_are_weighed_among_themselves_or_among_all_each_row_for_itself() -> None:
    logits = random_logits(40)
    allowed = [(3,), (0, 49), (5, 6, 7, 8), (1, 3, 9), (0, 49), (1, 2, 3), (49,)]
    draws = {
        row: Draw(allowed=allowed[row % 7], among_all=row % 3 > 0, weigh=True)
        for row in range(5, 40)
    }
    found = weigh_tokens(logits, draws)
    assert list(found) == list(draws)
    for row, logs in found.items():
        own = logits[row, list(allowed[row % 7])].double()
        among = logits[row].double() if row % 3 else own
        assert logs == pytest.approx((own - among.logsumexp(0)).tolist(), abs=1e-9)


def test_tokens_are_equally_likely_only_if_their_logits_are_equal() -> None:
    close = torch.tensor([1e-3, 1e-3]).nextafter(torch.tensor([1e-3, 1.0]))
    first, second = weigh_tokens(close[None], {0: Draw(allowed=(0, 1))})[0]
    assert first < second
    first, second = weigh_tokens(torch.ones(1, 2).bfloat16(), {0: Draw(allowed=(0, 1))})[0]
    assert first == second


def test_weighed_and_drawn_rows_may_stand_beside_each_other() -> None:
    logits = random_logits(len(MIXED) + 2)
    weigh = Draw(allowed=(4, 9), weigh=True)
    draws = [weigh, *MIXED, weigh]
    found = follow_draws(Logits(logits.clone()), draws)
    assert found[1:-1] == draw_tokens(logits[1:-1].clone(), MIXED)
    assert {0: found[0], 7: found[7]} == weigh_tokens(logits, {0: weigh, 7: weigh})
    assert follow_draws(Logits(logits[1:-1].clone()), MIXED) == found[1:-1]
    assert follow_draws(Logits(logits[:1].clone()), [weigh]) == found[:1]


def test_the_largest_is_not_looked_for_again() -> None:
    logits = random_logits(3)
    assert follow_draws(Logits(logits, np.array([5, 6, -1])), [Draw()] * 3) == [5, 6, -1]


@pytest.mark.parametrize(
    "other", [Draw(1.0), Draw(allowed=(4, 9)), Draw(allowed=(4, 9), weigh=True)]
)
def test_the_largest_of_all_is_of_no_use_to_other_draws(other: Draw) -> None:
    logits, draws = random_logits(2), [other, replace(other, seed=5)]
    expected = follow_draws(Logits(logits.clone()), draws)
    assert follow_draws(Logits(logits.clone(), np.array([-1, -1])), draws) == expected
