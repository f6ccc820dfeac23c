"""Plans against a provider's own billing: never above no marks, the best marks on tiny calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.standin import prompt as theirs
from benchmarks.standin.billing import usd
from benchmarks.standin.cache import MarkedCache
from benchmarks.standin.prompt import Block, Sent
from benchmarks.standin.rules import HOUR, Rules
from relquery.prices.price import Price
from relquery.prompt import Prompt, Span
from relquery.sql.caching import WORTH, CachePlan, Counter, cache_plan

MARKS = Sequence[Sequence[int]]
FIELDS = st.sampled_from(["a", "bb", "ccc"])
CALLS = st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=3, unique=True)


def rules(minimum: int = 1) -> Rules:
    """A model with breakpoints, priced like Anthropic's."""
    known: dict[str, Any] = {
        "write": 1.25,
        "write_hour": 2.0,
        "breakpoints": 4,
        "lookback": 20,
        "lifetime": 300,
    }
    return Rules("m", "anthropic", "", "", 1.0, 0.1, 1.0, minimum, **known)


def price(minimum: int = 1, write_1h: float | None = 2.0, lifetime_s: float = 300.0) -> Price:
    return Price(
        "claude-m",
        "2026-11",
        "",
        uncached=1.0,
        write=1.25,
        read=0.1,
        output=1.0,
        minimum=minimum,
        breakpoints=4,
        lifetime_s=lifetime_s,
        write_1h=write_1h,
    )


def letters(texts: Sequence[str]) -> list[list[int]]:
    """A token a letter."""
    return [list(text.encode()) for text in texts]


def plan_of(
    prompts: Sequence[Prompt], of: Price, under_way: int = 1, rate: float | None = None
) -> CachePlan:
    counter = Counter(letters)
    return cache_plan(prompts, of, under_way, counter=counter, requests_per_minute=rate)


def prompt_of(fields: Sequence[str]) -> Prompt:
    return tuple(Span(f"{at}{text}") for at, text in enumerate(fields))


def sent(prompt: Prompt, marks: Sequence[int] | None = None) -> Sent:
    """The request of a prompt: a block for each span. marks: None for those of the spans."""
    kept = [at for at, span in enumerate(prompt, 1) if span.keep] if marks is None else marks
    lives = max((span.keep_for for span in prompt if span.keep), default=300.0)
    return Sent(
        tuple(
            Block(span.role.value, str(span.content), lives=lives if at in kept else None)
            for at, span in enumerate(prompt, start=1)
        )
    )


def billed(requests: Sequence[Sent], of: Rules, gap: float = 1.0, *, together: int = 1) -> float:
    """USD if so many requests are sent at once, then as many the next time they are answered."""
    cache, total = MarkedCache(of, theirs.Counter(list)), 0.0
    for number, start in enumerate(range(0, len(requests), together)):
        some = requests[start : start + together]
        readings = [cache.look_up(request, number * gap) for request in some]
        for reading in readings:
            reading.begin(number * gap)
            total += usd(of, reading, 0)
    return total


def every_marks(prompts: Sequence[Prompt]) -> Iterator[MARKS]:
    ways = [
        [
            marks
            for size in range(len(one) + 1)
            for marks in combinations(range(1, len(one) + 1), size)
        ]
        for one in prompts
    ]
    yield from product(*ways)


@given(CALLS, st.integers(0, 8))
def test_no_marks_are_cheaper_than_the_plans(
    calls: list[tuple[str, str, str]], minimum: int
) -> None:
    prompts = [prompt_of(fields) for fields in calls]
    plan = plan_of(prompts, price(minimum))
    mine = billed(list(map(sent, plan.prompts(prompts))), rules(minimum))
    ways = every_marks(prompts)
    best = min(billed(list(map(sent, prompts, marks)), rules(minimum)) for marks in ways)
    if any(plan.marks):
        assert mine == pytest.approx(best)
    else:
        assert best >= (1 - WORTH) * mine - 1e-12


@given(
    st.lists(st.tuples(*[FIELDS] * 6), min_size=1, max_size=12, unique=True),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 3),
)
def test_a_wrong_count_of_tokens_never_makes_marks_cost_more_than_none(
    calls: list[tuple[str, ...]], ours: int, theirs: int, scale: int
) -> None:
    prompts = [prompt_of(fields) for fields in calls]

    def estimate(texts: Sequence[str]) -> list[list[int]]:
        return [[0] * (len(text) * scale) for text in texts]

    plan = cache_plan(prompts, price(ours), 1, counter=Counter(estimate))
    without = billed([sent(prompt, ()) for prompt in prompts], rules(theirs))
    marked = billed(list(map(sent, plan.prompts(prompts))), rules(theirs))
    assert marked <= without + 1e-12


def test_prefixes_somewhat_below_the_minimum_by_our_count_are_marked() -> None:
    prompts = [prompt_of(["s" * 99, f"own {number}"]) for number in range(4)]
    assert all(plan_of(prompts, price(120)).marks)
    assert not plan_of(prompts, price(130)).changes


def test_marks_that_save_less_than_one_percent_are_left_out() -> None:
    pair = [prompt_of(["shared " * 20, f"own {number}"]) for number in range(2)]
    others = [prompt_of([f"{number} other " * 200, "own"]) for number in range(8)]
    assert plan_of(pair, price()).changes
    assert not plan_of([*pair, *others], price()).changes


def test_prefixes_kept_for_an_hour_are_cheaper_if_requests_are_far_apart() -> None:
    prompts = [prompt_of(["shared " * 20, f"own {number}"]) for number in range(8)]
    seldom = plan_of(prompts, price(), rate=0.1)
    assert seldom.keep_for == HOUR
    hourly = billed(list(map(sent, seldom.prompts(prompts))), rules(), gap=600)
    assert hourly < billed([sent(prompt, ()) for prompt in prompts], rules(), gap=600)


def test_only_prices_with_entries_of_an_hour_keep_prefixes_so_long() -> None:
    prompts = [prompt_of(["shared " * 20, f"own {number}"]) for number in range(8)]
    plan = plan_of(prompts, price(write_1h=None, lifetime_s=1800.0), rate=0.1)
    assert plan.keep_for == 1800


def grouped(groups: int, rows: int) -> list[Prompt]:
    return [
        prompt_of([f"group {group} " * 18, f"row {group} {row}"])
        for group in range(groups)
        for row in range(rows)
    ]


def test_requests_that_are_sent_together_are_billed_as_if_sent_one_by_one() -> None:
    prompts = grouped(40, 5)
    in_turn = list(map(sent, plan_of(prompts, price(20)).prompts(prompts)))
    alone = billed(in_turn, rules(20))
    ours = list(map(sent, plan_of(prompts, price(20), 8).prompts(prompts)))
    assert billed(ours, rules(20), together=8) == pytest.approx(alone)
    given = plan_of(prompts, price(20), 8)
    marked = [given.prompts(prompts)[int(at)] for at in given.order.argsort()]
    assert billed(list(map(sent, marked)), rules(20), together=8) > 1.3 * alone


def test_an_empty_call_has_an_empty_plan() -> None:
    plan = plan_of([], price())
    assert plan.marks == []
    assert not plan.changes
