"""The sampler in NumPy, against the one in torch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.executor import NOT_FINITE, Drawn
from relquery.engine.request.request import Draw
from relquery.model import sampler, sampling
from relquery.model.forward.stock import Logits
from relquery.model.kernels.largest import find_largest
from relquery.prompt import TokenLogprob

WIDTH = 40


def drawn(rows: np.ndarray[Any, np.dtype[np.float32]], draws: list[Draw]) -> list[Drawn]:
    largest = find_largest(torch.from_numpy(rows))
    return sampler.follow_draws(sampler.Logits(largest, lambda: rows), draws)


ALLOWED = st.sets(st.integers(0, WIDTH - 1), min_size=1, max_size=6).map(lambda s: tuple(sorted(s)))
DRAWS = st.one_of(
    st.builds(Draw, logprobs=st.none() | st.integers(0, 45)),
    st.builds(Draw, allowed=ALLOWED, logprobs=st.none() | st.integers(0, 5)),
    st.builds(Draw, allowed=ALLOWED, among_all=st.booleans(), weigh=st.just(True)),
)


@given(draws=st.lists(DRAWS, min_size=1, max_size=6), seed=st.integers(0, 99), odd=st.booleans())
def test_draws_without_chance_are_those_of_torch(draws: list[Draw], seed: int, odd: bool) -> None:
    rows = np.random.default_rng(seed).normal(0, 2, (len(draws), WIDTH)).astype(np.float32)
    rows = np.round(rows, 1)  # some are equal
    if odd:
        rows[seed % len(rows), seed % WIDTH] = (np.nan, np.inf, -np.inf)[seed % 3]
    expected = sampling.follow_draws(Logits(torch.from_numpy(rows.copy())), draws)
    for found, wanted in zip(drawn(rows, draws), expected, strict=True):
        if isinstance(wanted, TokenLogprob):
            assert isinstance(found, TokenLogprob)
            assert found.token == wanted.token
            assert found.logprob == pytest.approx(wanted.logprob)
            assert [token for token, _ in found.top] == [token for token, _ in wanted.top]
            assert [log for _, log in found.top] == pytest.approx([log for _, log in wanted.top])
        else:
            assert found == (pytest.approx(wanted) if isinstance(wanted, tuple) else wanted)


@pytest.mark.parametrize(
    "settings", [{}, {"top_k": 2}, {"top_p": 0.75}, {"temperature": 0.5}, {"allowed": (0, 3)}]
)
def test_tokens_are_drawn_as_often_as_torch_draws_them(settings: dict[str, Any]) -> None:
    logits = np.log(np.array([[0.1, 0.4, 0.2, 0.3]], dtype=np.float32))
    draws = [Draw(**{"temperature": 1.0, **settings, "seed": seed}) for seed in range(2_000)]
    rows = np.repeat(logits, len(draws), axis=0)
    found = Counter(drawn(rows, draws))
    expected = Counter(sampling.draw_tokens(torch.from_numpy(rows.copy()), draws))
    assert {*found} == {*expected}
    for token, count in expected.items():
        assert found[token] == pytest.approx(count, abs=90)  # four deviations


def test_a_draw_repeats_with_its_seed_and_next_to_nothing_is_greedy() -> None:
    rows = np.random.default_rng(1).normal(0, 2, (20, WIDTH)).astype(np.float32)
    for draw in (Draw(1e-38), Draw(1.0, top_k=1), Draw(1.0, top_p=1e-300)):
        assert drawn(rows, [draw] * 20) == rows.argmax(-1).tolist()
    seeds = [Draw(1.0, seed=seed) for seed in (-1, 2**70, 7, 7)]
    first = drawn(np.zeros((4, WIDTH), np.float32), seeds)
    assert first == drawn(np.zeros((4, WIDTH), np.float32), seeds)
    assert first[2] == first[3] != NOT_FINITE
