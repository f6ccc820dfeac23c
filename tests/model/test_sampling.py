"""From logits to token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf, log, nan
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relquery.arrays import TokenIds
from relquery.engine.executor import NOT_FINITE, Drawn
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Draw, Request, Rules
from relquery.model import sampler
from relquery.model.native_runtime import NativeExecutor
from relquery.model.sampler import Logits, follow_draws, tokens_read
from relquery.model.torch_runtime.executor import largest_of, on_host
from relquery.prompt import TokenLogprob
from tests.cases import cases
from tests.engine.harness import spied
from tests.model.oracle.architectures import (
    engine_of,
    finished,
    model_of,
    prompts_with_shared_prefixes,
    quick_of,
)
from tests.model.test_generate import SETTINGS

DRAWS = 2000
Rows = npt.NDArray[np.float32]


def drawn_from(rows: Any, draws: Sequence[Draw]) -> list[Drawn]:
    """What is drawn from rows of logits, which are not changed."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    before = rows.copy()
    found = follow_draws(Logits(largest_of(torch.from_numpy(rows)), rows.__getitem__), draws)
    np.testing.assert_array_equal(rows, before)
    return found


def logits_of(*probabilities: float) -> Rows:
    return np.log(np.array(probabilities, dtype=np.float32))


def drawn(logits: Rows, draw: Draw, count: int = DRAWS) -> Counter[Any]:
    """How often each token is drawn, over as many seeds."""
    draws = [
        Draw(draw.temperature, draw.top_p, draw.top_k, seed, draw.allowed) for seed in range(count)
    ]
    return Counter(drawn_from(np.tile(logits, (count, 1)), draws))


def random_logits(rows: int, vocabulary: int = 50) -> Rows:
    return np.random.default_rng(1).normal(0, 2, (rows, vocabulary)).astype(np.float32)


def test_greedy_takes_the_likeliest_allowed_token_of_each_row() -> None:
    logits = random_logits(9)
    likeliest = logits.argmax(-1).tolist()
    assert drawn_from(logits, [Draw()] * 9) == likeliest
    for allowed in [(3,), (0, 49), (5, 6, 7, 8)]:
        best = [allowed[int(row[list(allowed)].argmax())] for row in logits]
        assert drawn_from(logits, [Draw(allowed=allowed)] * 9) == best
    assert drawn_from(logits[:2], [Draw(allowed=(4,)), Draw()]) == [4, likeliest[1]]


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
    logits = np.zeros(1000, np.float32)
    assert len(drawn(logits, Draw(1.0), 50)) > 40
    assert drawn(logits, Draw(1.0), 50) == drawn(logits, Draw(1.0), 50)
    draws = [Draw(1.0, seed=seed) for seed in (-1, 2**70, -(2**63))]
    rows = np.zeros((3, 1000), np.float32)
    assert drawn_from(rows, draws) == drawn_from(rows, draws)


def test_the_global_random_state_is_neither_read_nor_changed() -> None:
    np.random.seed(1)
    first = drawn_from(np.zeros((1, 1000)), [Draw(1.0, seed=5)])
    following = np.random.rand()
    np.random.seed(1)
    assert following == np.random.rand()
    assert drawn_from(np.zeros((1, 1000)), [Draw(1.0, seed=5)]) == first


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
    alone = [drawn_from(logits[i : i + 1], [draw])[0] for i, draw in enumerate(MIXED)]
    order = [4, 2, 0, 5, 3, 1]
    together = drawn_from(logits[order], [MIXED[i] for i in order])
    assert together == [alone[i] for i in order]


def test_a_mass_that_is_rounded_to_one_hides_no_token() -> None:
    # Rounded, the mass before the last token is 1: that must not count as beyond top_p = 1.
    row = np.array([0.0, -20.0], np.float32)
    assert sampler._truncated(row, Draw(1.0, top_k=5)).tolist() == [0.0, -20.0]
    assert sampler._truncated(row, Draw(1.0, top_p=0.5)).tolist() == [0.0, -np.inf]
    half = sampler._truncated(np.zeros(2, np.float32), Draw(1.0, top_p=0.5))
    assert np.isfinite(half).sum() == 1, "half of the mass is enough for top_p = 0.5"


def test_next_to_nothing_is_greedy() -> None:
    logits, cold = random_logits(20), map(Draw, [1e-6, 1e-30, 1e-38, 5e-324])
    for coldest in (*cold, Draw(1.0, top_p=1e-300), Draw(1.0, top_k=1)):
        draws = [replace(coldest, seed=seed) for seed in range(20)]
        assert drawn_from(logits, draws) == logits.argmax(-1).tolist(), coldest


@pytest.mark.parametrize("hottest", [1e300, 10**300])
def test_the_hottest_draw_is_uniform_and_leaves_its_neighbour_alone(hottest: float) -> None:
    logits = random_logits(1, 4)
    counts = drawn(logits[0], Draw(hottest, top_k=2**70))
    assert min(counts.values()) > 0.2 * DRAWS
    alone = drawn_from(logits, [Draw(1.0, seed=3)])
    assert drawn_from(np.tile(logits, (2, 1)), [Draw(1.0, seed=3), Draw(hottest)])[:1] == alone


# ---- weights


def test_allowed_tokens_are_weighed_among_themselves_or_among_all_each_row_for_itself() -> None:
    logits = random_logits(40)
    allowed = [(3,), (0, 49), (5, 6, 7, 8), (1, 3, 9), (0, 49), (1, 2, 3), (49,)]
    draws = [Draw(allowed=allowed[row % 7], among_all=row % 3 > 0, weigh=True) for row in range(40)]
    for row, logs in enumerate(drawn_from(logits, draws)):
        own = torch.from_numpy(logits[row, list(allowed[row % 7])]).double()
        among = torch.from_numpy(logits[row]).double() if row % 3 else own
        assert logs == pytest.approx((own - among.logsumexp(0)).tolist(), abs=1e-9)


def test_tokens_are_equally_likely_only_if_their_logits_are_equal() -> None:
    weigh = Draw(allowed=(0, 1), weigh=True)
    close = np.nextafter(np.array([[1e-3, 1e-3]], np.float32), np.array([[1e-3, 1]], np.float32))
    ((first, second),) = drawn_from(close, [weigh])  # type: ignore[misc]
    assert first < second
    ((first, second),) = drawn_from(np.ones((1, 2)), [weigh])  # type: ignore[misc]
    assert first == second


def test_weighed_and_drawn_rows_may_stand_beside_each_other() -> None:
    logits = random_logits(len(MIXED) + 2)
    weigh = Draw(allowed=(4, 9), weigh=True)
    found = drawn_from(logits, [weigh, *MIXED, weigh])
    assert found[1:-1] == drawn_from(logits[1:-1], MIXED)
    assert [found[0], found[7]] == drawn_from(logits[[0, 7]], [weigh] * 2)


def test_the_logits_are_not_read_for_the_likeliest_of_all() -> None:
    def read(row: int) -> Rows:
        raise AssertionError("they are not needed")

    assert follow_draws(Logits(np.array([5, 6, -1]), read), [Draw()] * 3) == [5, 6, -1]


@pytest.mark.parametrize(
    "other", [Draw(1.0), Draw(allowed=(4, 9)), Draw(allowed=(4, 9), weigh=True)]
)
def test_the_largest_of_all_is_of_no_use_to_other_draws(other: Draw) -> None:
    logits, draws = random_logits(2), [other, replace(other, seed=5)]
    wrong = follow_draws(Logits(np.array([-1, -1]), logits.__getitem__), draws)
    assert wrong == drawn_from(logits, draws)


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


def check_all(name: str, limits: dict[str, Any], runtime: str = "native") -> None:
    model, stock = model_of(name, runtime)
    prompts = prompts_with_shared_prefixes(14)
    with pytest.MonkeyPatch.context() as patch:  # nothing is computed where nobody asks
        patch.setattr(sampler, "_told", None)
        unasked = outputs(engine_of(model), requests_of(prompts, asks=False))
    requests = requests_of(prompts)
    assert outputs(engine_of(model, **limits), requests) == unasked
    for request in requests:
        check(request, stock)


@quick_of({*SETTINGS} - {"preemption"}, "no prefix caching", "chunks of 5 tokens")
def test_values_are_the_stock_networks_in_every_setting(name: str) -> None:
    check_all("llama", SETTINGS[name])


@quick_of(["qwen3", "gpt2", "opt", "gemma3", "bloom"], "gpt2", "bloom")
def test_values_are_those_of_other_networks_too(name: str) -> None:
    check_all(name, {}, "torch")


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


def test_runs_of_decode_steps_give_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan and no chunks: what decodes most, with and without others."""
    followed = spied(monkeypatch, NativeExecutor, "follow")
    (model, stock), prompts = model_of("llama", "native"), prompts_with_shared_prefixes(4)
    for counts in ([3, 3, 3, 3], [0, None, 20, None]):
        requests = [
            Request(number, prompt, TOKENS, Draw(logprobs=count))
            for number, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
        ]
        alone = [Request(number, prompt, TOKENS) for number, prompt in enumerate(prompts)]
        expected = outputs(engine_of(model), alone)
        followed.clear()
        assert outputs(engine_of(model), requests) == expected
        # but for the prompts' step and the first of the run
        assert len(followed) - followed.count(None) == TOKENS - 2
        for request in requests:
            check(request, stock)


@pytest.mark.parametrize("runtime", ["native", "torch"])
def test_a_prompt_from_the_cache_gives_the_same_values(runtime: str) -> None:
    model, stock = model_of("llama", runtime)
    engine, prompt = engine_of(model, block_size=4), prompts_with_shared_prefixes(3)[1]
    first, again = (Request(number, prompt, TOKENS, Draw(logprobs=4)) for number in range(2))
    outputs(engine, [first])
    outputs(engine, [again])
    assert again.cached == (len(prompt) - 1) // 4 * 4 > 0
    for request in first, again:
        check(request, stock)


def test_they_are_those_before_drawing_restricts_or_heats() -> None:
    logits = random_logits(3, 40)
    logs = torch.from_numpy(logits).double().log_softmax(-1)
    draws = [Draw(allowed=(4, 9), logprobs=2), Draw(2.0, seed=1, logprobs=0), Draw(0.5, seed=2)]
    first, second, third = drawn_from(logits, draws)
    bare = [Draw(each.temperature, seed=each.seed, allowed=each.allowed) for each in draws]
    assert isinstance(first, TokenLogprob)
    assert isinstance(second, TokenLogprob)
    assert [first.token, second.token, third] == drawn_from(logits, bare)
    assert first.logprob == pytest.approx(float(logs[0, first.token]), abs=1e-12)
    assert second.logprob == pytest.approx(float(logs[1, second.token]))
    assert second.top == ()
    top = logs[0].topk(2)
    assert [token for token, _ in first.top] == top.indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(top.values.tolist(), abs=1e-12)


def told(row: Any, count: int) -> TokenLogprob:
    (found,) = drawn_from([row], [Draw(logprobs=count)])
    assert isinstance(found, TokenLogprob)
    return found


def test_of_equally_likely_tokens_the_first_comes_first() -> None:
    row = np.zeros(50)
    row[30] = 1
    for count in range(21):
        assert [token for token, _ in told(row, count).top] == [30, *range(19)][:count]


@given(width=st.integers(1, 90), count=st.integers(0, 20), seed=st.integers(0, 99))
def test_the_likeliest_are_those_of_sorting_all(width: int, count: int, seed: int) -> None:
    row = np.random.default_rng(seed).normal(0, 3, width).round(1).astype(np.float32)
    logs, order = torch.from_numpy(row).double().log_softmax(-1).sort(descending=True, stable=True)
    found = told(row, count)
    assert [token for token, _ in found.top] == order[:count].tolist()
    assert [value for _, value in found.top] == pytest.approx(logs[:count].tolist(), abs=1e-12)


def test_a_vocabulary_may_have_fewer_tokens_than_are_asked_for() -> None:
    found = told([log(0.25), log(0.75), -inf], 20)
    assert [token for token, _ in found.top] == [1, 0, 2]
    assert np.exp([value for _, value in found.top]) == pytest.approx([0.75, 0.25, 0])


@pytest.mark.parametrize("broken", [nan, inf])
def test_a_row_that_is_not_finite_has_none_and_spoils_no_other(broken: float) -> None:
    logits = np.zeros((2, 4), np.float32)
    logits[0, 3] = broken
    draws = [Draw(allowed=(0, 1), logprobs=1), Draw(logprobs=1)]
    found = drawn_from(logits, draws)
    assert found[0] == NOT_FINITE
    assert isinstance(found[1], TokenLogprob)
    assert found[1].token == found[1].top[0][0] == 0
    assert [found[1].logprob, found[1].top[0][1]] == pytest.approx([-log(4)] * 2)


def test_only_what_draws_read_comes_from_the_device() -> None:
    logits = torch.randn(4, 50)
    plain, weighs, others = Draw(), Draw(allowed=(7, 3), weigh=True), Draw(allowed=(9,), weigh=True)
    of_all, sampled = replace(weighs, among_all=True), Draw(temperature=1.0)
    for draws, read in (
        ([weighs, plain, others, weighs], [3, 7, 9]),
        ([plain] * 4, None),
        ([weighs, plain, others, of_all], None),
        ([weighs, plain, others, sampled], None),
    ):
        found = tokens_read(draws)
        assert (found if found is None else found.tolist()) == read
        rows = on_host(logits, found)
        assert np.count_nonzero(rows) == 4 * (50 if read is None else len(read))
        whole = Logits(largest_of(logits), logits.numpy().__getitem__)
        assert follow_draws(Logits(whole.largest, rows.__getitem__), draws) == follow_draws(
            whole, draws
        )
