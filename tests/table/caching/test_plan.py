"""Plans against a provider's own billing: never above no marks, the best marks on tiny calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.providers.standin.billing import usd
from benchmarks.providers.standin.cache import AutomaticCache, Cache, MarkedCache
from benchmarks.providers.standin.prompt import Block, Counter, Sent
from benchmarks.providers.standin.rules import HOUR, RULES, Rules
from relquery.prompt import Nest, Prompt, Reuse, Role, Span
from relquery.table.caching.plan import CachePlan, plan_caching
from relquery.table.cost.price import Price

MARKS = Sequence[Sequence[int]]
FIELDS = st.sampled_from(["a", "bb", "ccc"])
CALLS = st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=3, unique=True)


def rules(minimum: int = 1, **fields: float) -> Rules:
    """A model with breakpoints, priced like Anthropic's."""
    known = {"write": 1.25, "write_hour": 2.0, "breakpoints": 4, "lookback": 20, "lifetime": 300}
    return Rules("m", "anthropic", "", "", 1.0, 0.1, 1.0, minimum, **{**known, **fields})


def price(minimum: int = 1, **fields: float) -> Price:
    known = {"write": 1.25, "breakpoints": 4, "lifetime_s": 300.0, **fields}
    return Price("claude-m", "2026-11", "", 1.0, read=0.1, output=1.0, minimum=minimum, **known)


def letters(texts: list[str]) -> list[list[int]]:
    """A token a letter."""
    return [list(text.encode()) for text in texts]


def prompt_of(fields: Sequence[str]) -> Prompt:
    return tuple(Span(f"{at}{text}") for at, text in enumerate(fields))


def sent(prompt: Prompt, marks: Sequence[int] = (), key: str = "", lives: float = 300) -> Sent:
    """The request of a prompt: a block for each span."""
    blocks = [
        Block(span.role.value, str(span.content), lives=lives if at in marks else None)
        for at, span in enumerate(prompt, start=1)
    ]
    return Sent(tuple(blocks), key)


def billed(requests: Sequence[Sent], of: Rules, gap: float = 1.0) -> float:
    """USD if the requests are sent one after the other, so many seconds apart."""
    cache: Cache = MarkedCache(of, Counter(list))
    total = 0.0
    for number, request in enumerate(requests):
        reading = cache.look_up(request, number * gap)
        reading.begin(number * gap)
        total += usd(of, reading, 0)
    return total


def planned(prompts: Sequence[Prompt], plan: CachePlan) -> list[Sent]:
    """The requests as the plan marks them, read off the spans."""
    marked = [plan.mark(at, prompt) for at, prompt in enumerate(prompts)]
    return [
        sent(prompt, [at for at, span in enumerate(prompt, 1) if span.keep], lives=plan.seconds)
        for prompt in marked
    ]


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
    plan = plan_caching(prompts, price(minimum), letters)
    mine = billed(planned(prompts, plan), rules(minimum))
    ways = every_marks(prompts)
    best = min(billed(list(map(sent, prompts, marks)), rules(minimum)) for marks in ways)
    assert plan.bill is not None
    assert mine == pytest.approx(plan.bill.usd) == pytest.approx(best)


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

    def estimate(texts: list[str]) -> list[list[int]]:
        return [[0] * (len(text) * scale) for text in texts]

    plan = plan_caching(prompts, price(ours), estimate)
    without = billed([sent(prompt) for prompt in prompts], rules(theirs))
    assert billed(planned(prompts, plan), rules(theirs)) <= without + 1e-12


def test_prefixes_are_kept_for_an_hour_only_if_requests_are_far_apart() -> None:
    prompts = [prompt_of(["shared " * 20, f"own {number}"]) for number in range(8)]
    often = plan_caching(prompts, price(), letters, requests_per_minute=60)
    seldom = plan_caching(prompts, price(), letters, requests_per_minute=0.1)
    assert often.seconds == 300
    assert seldom.seconds == HOUR
    hourly = billed(planned(prompts, seldom), rules(), gap=600)
    assert seldom.bill is not None
    assert hourly == pytest.approx(seldom.bill.usd)
    assert hourly < billed([sent(prompt) for prompt in prompts], rules(), gap=600)


def test_only_anthropic_keeps_prefixes_for_an_hour() -> None:
    prompts = [prompt_of(["shared " * 20, f"own {number}"]) for number in range(8)]
    other = Price("gpt-m", "2026-11", "", 1.0, 1.25, 0.1, 1.0, 1, breakpoints=4, lifetime_s=1800.0)
    plan = plan_caching(prompts, other, letters, requests_per_minute=0.1)
    assert plan.seconds == 1800


def nested(groups: int = 6, rows: int = 5) -> list[Prompt]:
    """Groups in two halves: the first block is that of the half, the second that of the group."""
    return [
        prompt_of([f"half {group % 2} " * 9, f"group {group} " * 9, f"row {group} {row}"])
        for group in sorted(range(groups), key=lambda group: group % 2)
        for row in range(rows)
    ]


def test_a_request_waits_for_the_one_that_writes_what_it_reads() -> None:
    prompts = nested()
    plan = plan_caching(prompts, price(20), letters)
    assert (plan.after < np.arange(len(prompts))).all()
    for at, other in enumerate(plan.after.tolist()):
        longest = max(
            (n for n in plan.marks[at] if prompts[at][:n] in begun(prompts[:at])), default=0
        )
        assert (other < 0) == (longest == 0)
        if longest:
            assert prompts[other][:longest] == prompts[at][:longest]


def begun(prompts: Sequence[Prompt]) -> set[Prompt]:
    return {prompt[:n] for prompt in prompts for n in range(1, len(prompt) + 1)}


def concurrently(prompts: Sequence[Prompt], plan: CachePlan, of: Rules, *, waits: bool) -> float:
    """USD with eight requests under way at a time, each of which begins to be answered after 1 s.

    waits: whether a request waits for the one that it reads from; others are sent meanwhile.
    """
    cache = MarkedCache(of, Counter(list))
    requests, total, now = planned(prompts, plan), 0.0, 0.0
    left, done = list(range(len(requests))), set[int]()
    while left:
        ready = [at for at in left if not waits or plan.after[at] < 0 or plan.after[at] in done]
        sending = ready[:8]
        readings = [cache.look_up(requests[at], now) for at in sending]
        now += 1.0
        for at, reading in zip(sending, readings, strict=True):
            reading.begin(now)
            total += usd(of, reading, 0)
            done.add(at)
            left.remove(at)
    return total


def test_requests_that_wait_are_billed_as_if_sent_one_after_the_other() -> None:
    prompts = nested()
    plan = plan_caching(prompts, price(20), letters)
    assert plan.bill is not None
    assert concurrently(prompts, plan, rules(20), waits=True) == pytest.approx(plan.bill.usd)
    assert concurrently(prompts, plan, rules(20), waits=False) > 1.3 * plan.bill.usd


def test_batches_go_in_waves_that_are_billed_nearly_the_same() -> None:
    prompts = nested(40, 20)
    plan = plan_caching(prompts, price(20), letters)
    waves, requests = plan.waves(), planned(prompts, plan)
    cache, total = MarkedCache(rules(20), Counter(list)), 0.0
    for wave in range(int(waves.max()) + 1):
        readings = [cache.look_up(requests[at], wave) for at in np.flatnonzero(waves == wave)]
        for reading in readings:
            reading.begin(wave)
            total += usd(rules(20), reading, 0)
    assert plan.bill is not None
    assert 1 < waves.max() + 1 <= 3
    assert total <= 1.05 * plan.bill.usd


def test_prompts_that_no_provider_takes_have_no_marks() -> None:
    module = Span(Nest((Span("a"),)), Role.USER, Reuse.INDEPENDENT)
    plan = plan_caching([(module,), (Span((1, 2)),)], price(), letters)
    assert plan.marks == [(), ()]
    assert plan.bill is None
    assert plan.waves().tolist() == [0, 0]
    assert plan.mark(0, (module,)) == (module,)


def test_an_order_pays_only_if_prompts_share_what_the_provider_keeps() -> None:
    assert plan_caching(nested(), price(20), letters).pays
    assert not plan_caching(nested(), price(2_000), letters).pays
    assert not plan_caching([(Span((1, 2)),)], price(), letters).pays


def test_an_empty_call_has_an_empty_plan() -> None:
    plan = plan_caching([], price(), letters)
    assert plan.marks == []
    assert plan.bill is not None
    assert plan.bill.usd == 0


def busy(groups: int, rows: int) -> list[Prompt]:
    """Groups that begin with the same long instruction, so all go to one machine by themselves."""
    return [
        prompt_of([f"{'rule ' * 60}", f"group {group} " * 100, f"row {group} {row}"])
        for group in range(groups)
        for row in range(rows)
    ]


AUTOMATIC = RULES["gpt-5.4-mini"]
OPENAI = Price(
    "gpt-m", "2026-11", "", 1.0, 1.0, 0.1, 1.0, 1024, 128, 0, requests_per_minute=15, lifetime_s=300
)


def served(prompts: Sequence[Prompt], keys: Sequence[str], per_minute: float) -> int:
    cache, total = AutomaticCache(AUTOMATIC, Counter(list)), 0
    for number, (prompt, key) in enumerate(zip(prompts, keys, strict=True)):
        now = number * 60 / per_minute
        reading = cache.look_up(sent(prompt, key=key), now)
        reading.begin(now)
        total += reading.read
    return total


@pytest.mark.parametrize(("groups", "rows"), [(40, 7), (3, 500), (1, 1500)])
def test_keys_keep_most_of_what_overflowing_machines_would_lose(groups: int, rows: int) -> None:
    prompts = busy(groups, rows)
    plan = plan_caching(prompts, OPENAI, letters, requests_per_minute=300)
    assert plan.marks == [()] * len(prompts)
    nobody = [""] * len(prompts)
    most = served(prompts, nobody, 15)
    lost = most - served(prompts, nobody, 300)
    assert lost > 0
    assert most - served(prompts, plan.keys, 300) < 0.6 * lost


def test_a_request_waits_for_one_with_its_own_key() -> None:
    plan = plan_caching(busy(3, 40), OPENAI, letters, requests_per_minute=300)
    assert len(set(plan.keys)) == 9
    for at, other in enumerate(plan.after.tolist()):
        assert other == -1 or plan.keys[other] == plan.keys[at]
    assert (plan.after < 0).sum() == 9


def test_requests_that_share_nothing_long_enough_have_no_key() -> None:
    prompts = [prompt_of([f"row {number}" * 300]) for number in range(4)]
    assert plan_caching(prompts, OPENAI, letters).keys == [""] * 4
    assert plan_caching(prompts, price(), letters).keys == [""] * 4


def test_equal_prefixes_have_equal_keys_in_every_call() -> None:
    first = plan_caching(busy(2, 3), OPENAI, letters)
    again = plan_caching(busy(2, 3), OPENAI, letters)
    assert first.keys == again.keys
    assert len(set(first.keys)) == 2
    assert first.seconds == inf
