"""From logits to token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from relquery.arrays import TokenIds
from relquery.engine.executor import NOT_FINITE
from relquery.engine.loop import Loop
from relquery.engine.request.request import Draw, Request
from relquery.engine.request.rules import Rules
from relquery.model import sampling
from relquery.model.forward.stock import Logits
from relquery.model.kernels.program import Program, can_run
from relquery.model.logprobs import ROWS_AT_ONCE, token_logprobs
from relquery.model.networks.load import LoadedModel
from relquery.model.sampling import draw_tokens, follow_draws, weigh_tokens
from relquery.model.torch_executor import TorchExecutor
from relquery.prompt import TokenLogprob
from tests.cases import cases
from tests.engine.harness import spied
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    engine_of,
    finished,
    larger,
    made,
    model_of,
    prepared,
    prompts_with_shared_prefixes,
    quick_of,
)
from tests.model.test_generate import SETTINGS

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


@pytest.mark.parametrize(("given", "support"), cases(__file__, "support"))
def test_top_k_and_top_p_leave_the_likeliest_of_the_allowed_tokens_at_their_relative_frequency(
    given: dict[str, Any], support: list[int]
) -> None:
    draw = Draw(**{"temperature": 1.0, **given})
    probabilities = (0.1, 0.4, 0.2, 0.3)
    counts = drawn(logits_of(*probabilities), draw)
    assert sorted(counts) == support
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
    half = sampling._truncate(torch.zeros(1, 2), [Draw(1.0, top_p=0.5)])
    assert half.isfinite().sum() == 1, "half of the mass is enough for top_p = 0.5"


def test_next_to_nothing_is_greedy() -> None:
    logits, cold = random_logits(20), map(Draw, [1e-6, 1e-30, 1e-38, 5e-324])
    for coldest in (*cold, Draw(1.0, top_p=1e-300), Draw(1.0, top_k=1)):
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


# ---- log-probabilities

TOKENS = 10
END = frozenset({2})
LABELS = ((5, 6, 7), (5, 6, 8, 9), (10,), (11, 12), (5, 6, 8, 4), (10, 30))
ANY, AMONG = Rules(), Rules(END, LABELS)
# Some ask and some don't; of those who do, each for another number of tokens.
KINDS: list[tuple[Draw, Rules]] = [
    (Draw(logprobs=5), ANY),
    (Draw(), ANY),
    (Draw(logprobs=0), ANY),
    (Draw(1.3, 0.9, 30, seed=4, logprobs=20), ANY),
    (Draw(1.3, seed=5), ANY),
    (Draw(logprobs=3), AMONG),
    (Draw(1.0, seed=6, logprobs=1), AMONG),
]


@cache
def side(name: str) -> tuple[LoadedModel, Any]:
    """A network on our attention, and the stock one; "recorded": its short steps are recorded."""
    if name != "recorded":
        return model_of(name)
    network = larger(made("Llama", LLAMA_LIKE, vocab_size=128, hidden_size=64))  # multiples of 64
    return prepared(deepcopy(network)), network


def requests_of(prompts: Sequence[TokenIds], asks: bool = True) -> list[Request]:
    """One request per prompt, of all kinds in turn. asks: if False, none asks."""
    made = []
    for number, prompt in enumerate(prompts):
        draw, rules = KINDS[number % len(KINDS)]
        draw = draw if asks else Draw(draw.temperature, draw.top_p, draw.top_k, draw.seed)
        made.append(Request(number, prompt, TOKENS, draw, rules))
    return made


@torch.inference_mode()
def check(request: Request, stock: Any) -> None:
    """What a request was told is what the stock network says of its prompt and output."""
    count = request.draw.logprobs
    if count is None:
        assert request.logprobs is None
        return
    assert request.logprobs is not None
    assert [told.token for told in request.logprobs] == request.output
    (piece,) = request.pieces
    ids = torch.tensor([[*piece.tokens.tolist(), *request.output]])
    rows = stock(ids, use_cache=False).logits[0, len(piece.tokens) - 1 : -1].log_softmax(-1)
    for told, row in zip(request.logprobs, rows, strict=True):
        assert told.logprob == pytest.approx(float(row[told.token]), abs=1e-4)
        assert len({token for token, _ in told.top}) == count
        logs = [value for _, value in told.top]
        assert logs == sorted(logs, reverse=True)
        assert logs == pytest.approx(row.topk(count).values.tolist(), abs=1e-4)
        assert logs == pytest.approx([float(row[token]) for token, _ in told.top], abs=1e-4)


def outputs(engine: Loop, requests: list[Request]) -> list[list[int]]:
    assert len(list(finished(engine, requests))) == len(requests)
    return [request.output for request in requests]


def check_all(name: str, limits: dict[str, Any]) -> None:
    model, stock = side(name)
    prompts = prompts_with_shared_prefixes(14)
    with pytest.MonkeyPatch.context() as patch:  # nothing is computed where nobody asks
        patch.setattr(sampling, "token_logprobs", None)
        unasked = outputs(engine_of(model), requests_of(prompts, asks=False))
    requests = requests_of(prompts)
    assert outputs(engine_of(model, **limits), requests) == unasked
    for request in requests:
        check(request, stock)


@quick_of({*SETTINGS} - {"preemption"}, "no prefix caching", "chunks of 5 tokens")
def test_values_are_the_stock_networks_in_every_setting(name: str) -> None:
    check_all("llama", SETTINGS[name])


@quick_of(["recorded", "qwen3", "gpt2", "opt", "gemma3", "bloom"], "recorded", "gpt2", "bloom")
def test_values_are_those_of_other_networks_too(name: str) -> None:
    check_all(name, {})


def test_a_request_that_loses_its_blocks_keeps_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[int] = []
    put_back = Loop._preempt

    def counted(self: Loop, request: Request) -> None:
        lost.append(len(request.logprobs or ()))
        put_back(self, request)

    monkeypatch.setattr(Loop, "_preempt", counted)
    check_all("llama", SETTINGS["preemption"])
    assert max(lost) > 0


@pytest.mark.skipif(not can_run(), reason="torch has no OpenMP here")
def test_runs_of_recorded_decode_steps_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan, one recording and no chunks: what decodes most, with and without others."""
    runs, followed = (
        spied(monkeypatch, *each) for each in ((Program, "run"), (TorchExecutor, "follow"))
    )
    (model, stock), prompts = side("recorded"), prompts_with_shared_prefixes(4)
    for counts in ([3, 3, 3, 3], [0, None, 20, None]):
        requests = [
            Request(number, prompt, TOKENS, Draw(logprobs=count))
            for number, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
        ]
        alone = [Request(number, prompt, TOKENS) for number, prompt in enumerate(prompts)]
        expected = outputs(engine_of(model), alone)
        runs.clear()
        followed.clear()
        assert outputs(engine_of(model), requests) == expected
        assert (
            len(followed) - followed.count(None) == TOKENS - 2
        )  # but for the prompts' step and the first of the run
        assert len(runs) >= TOKENS - 1
        for request in requests:
            check(request, stock)


@pytest.mark.parametrize("name", ["llama", "recorded"])
def test_a_prompt_from_the_cache_gives_the_same_values(name: str) -> None:
    model, stock = side(name)
    engine, prompt = engine_of(model, block_size=4), prompts_with_shared_prefixes(3)[1]
    first, again = (Request(number, prompt, TOKENS, Draw(logprobs=4)) for number in range(2))
    outputs(engine, [first])
    outputs(engine, [again])
    assert again.cached == (len(prompt) - 1) // 4 * 4 > 0
    for request in first, again:
        check(request, stock)


def test_logits_are_read_before_drawing_changes_them() -> None:
    """Also those of float32, which draws restrict and heat where they are."""
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)) * 2
    logs = logits.double().log_softmax(-1)
    draws = [Draw(allowed=(4, 9), logprobs=2), Draw(2.0, seed=1, logprobs=0), Draw(0.5, seed=2)]
    first, second, third = follow_draws(Logits(logits.clone()), draws)
    bare = [Draw(each.temperature, seed=each.seed, allowed=each.allowed) for each in draws]
    assert isinstance(first, TokenLogprob)
    assert isinstance(second, TokenLogprob)
    assert [first.token, second.token, third] == follow_draws(Logits(logits.clone()), bare)
    assert first.logprob == pytest.approx(float(logs[0, first.token]), abs=1e-12)
    assert second.logprob == pytest.approx(float(logs[1, second.token]))
    assert second.top == ()
    top = logs[0].topk(2)
    assert [token for token, _ in first.top] == top.indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(top.values.tolist(), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equally_likely_tokens_the_first_comes_first(dtype: torch.dtype) -> None:
    rows = 2 * ROWS_AT_ONCE + 3
    logits = torch.zeros(rows, 50, dtype=dtype)
    logits[:, 30] = 1
    total = torch.tensor([1.0, *[0.0] * 49]).double().logsumexp(0)
    counts = [number % 21 for number in range(rows)]
    for told, count in zip(token_logprobs(logits, [7] * rows, counts), counts, strict=True):
        assert isinstance(told, TokenLogprob)
        assert [token for token, _ in told.top] == [30, *range(19)][:count]
        assert told.logprob == pytest.approx(-float(total), abs=1e-12)


@pytest.mark.parametrize("width", [2_048, 5_000])
def test_the_likeliest_of_a_large_vocabulary_are_those_of_sorting_all_of_it(width: int) -> None:
    logits = torch.randn(40, width, generator=torch.Generator().manual_seed(width)).bfloat16() * 3
    logits[0, -30:] = 50  # behind all whole groups
    logits[1, ::1_024] = 50  # in one group
    found = token_logprobs(logits, [0] * 40, [20] * 40)
    for told, row in zip(found, logits.double().log_softmax(-1), strict=True):
        logs, order = row.sort(descending=True, stable=True)
        assert isinstance(told, TokenLogprob)
        assert [token for token, _ in told.top] == order[:20].tolist()
        assert [value for _, value in told.top] == pytest.approx(logs[:20].tolist(), abs=1e-12)


def test_a_vocabulary_may_have_fewer_tokens_than_are_asked_for() -> None:
    logits = torch.tensor([[log(0.25), log(0.75), -inf]])
    (told,) = token_logprobs(logits, [0], [20])
    assert isinstance(told, TokenLogprob)
    assert [token for token, _ in told.top] == [1, 0, 2]
    assert np.exp([value for _, value in told.top]) == pytest.approx([0.75, 0.25, 0])


@pytest.mark.parametrize("broken", [nan, inf])
def test_a_row_that_is_not_finite_has_none_and_spoils_no_other(broken: float) -> None:
    logits = torch.zeros(2, 4)
    logits[0, 3] = broken
    draws = [Draw(allowed=(0, 1), logprobs=1), Draw(logprobs=1)]
    found = follow_draws(Logits(logits), draws)
    assert found[0] == NOT_FINITE
    assert isinstance(found[1], TokenLogprob)
    assert found[1].token == found[1].top[0][0] == 0
    assert [found[1].logprob, found[1].top[0][1]] == pytest.approx([-log(4)] * 2)
