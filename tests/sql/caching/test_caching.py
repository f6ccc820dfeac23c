"""What a provider caches: which prefixes prompts mark, where they go, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.backends.base import Limits
from relquery.connection import connect
from relquery.prices.table import PRICES
from relquery.prompt import Prompt, Role, Span
from relquery.reordering.cost.billing import Blocks
from relquery.sql.caching import alike, cache_plan, planned, staggered, together
from tests.sql.explain.billed import Provider
from tests.sql.fakes import FakeBackend, Fields

MARKED, AUTOMATIC = PRICES["claude-sonnet-5"], PRICES["gpt-4o-mini"]
SENTENCE = "a few words that many rows share and that go on. "
LONG = SENTENCE * 150


def prompts_of(groups: int, rows: int, text: str = LONG) -> list[Prompt]:
    system = Span("You answer.", Role.SYSTEM)
    return [
        (system, Span(f"group {group}: {text}"), Span(f"row {group}/{row}"))
        for group in range(groups)
        for row in range(rows)
    ]


def marks_in(prompt: Prompt) -> list[tuple[int, float]]:
    return [(at, span.keep_for) for at, span in enumerate(prompt) if span.keep]


def last(prompts: Sequence[Prompt]) -> list[str]:
    return sorted(str(prompt[-1].content) for prompt in prompts)


def test_prefixes_that_pay_are_marked_where_their_span_ends() -> None:
    prompts = prompts_of(3, 4)
    for rate, seconds in [(None, 300.0), (100, 300.0), (0.1, 3600.0)]:  # slow: for an hour
        sent = cache_plan(prompts, MARKED, 1, requests_per_minute=rate).prompts(prompts)
        assert [marks_in(prompt) for prompt in sent] == [[(1, seconds)]] * 12
        assert last(sent) == last(prompts)
        assert list(sent[2:5]) == list(sent)[2:5]


def test_rows_that_share_too_little_are_sent_as_they_are() -> None:
    prompts = prompts_of(3, 4, "short")
    for price in (MARKED, AUTOMATIC):
        plan = cache_plan(prompts, price, 8)
        assert not plan.changes
        assert list(plan.prompts(prompts)) == prompts
    fewer = prompts_of(2, 4, LONG[: len(LONG) // 3])
    assert not cache_plan(fewer, MARKED, 1).changes
    assert any(cache_plan(fewer, MARKED, 1, factor=4.0).marks), "it counts more tokens than we do"


def test_automatic_caches_need_no_marks_but_an_order() -> None:
    prompts = prompts_of(20, 3)
    sent = cache_plan(prompts, AUTOMATIC, 4).prompts(prompts)
    assert not any(map(marks_in, sent))
    groups = [str(prompt[1].content) for prompt in sent]
    first = {group: groups.index(group) for group in groups}
    gaps = [at - first[group] for at, group in enumerate(groups) if at > first[group]]
    assert min(gaps) >= 8


def test_rows_that_are_sent_slowly_come_soon_after_what_they_read() -> None:
    """Written in another order: each group's rows stand ten minutes apart in the table. Every
    second group has a span more, so that its marks are others."""
    given = prompts_of(10, 4)
    for at, (system, *others) in enumerate(given):
        if at // 4 % 2:
            given[at] = (system, Span("Be brief."), *others)
    prompts = [given[group * 4 + row] for row in range(4) for group in range(10)]
    plan = cache_plan(prompts, MARKED, 16, requests_per_minute=1)
    sent = list(plan.prompts(prompts))
    groups = [str(prompt[-2].content) for prompt in sent]
    assert plan.keep_for == 300, "entries of an hour are written at a higher price"
    for group in set(groups):
        places = [at for at, one in enumerate(groups) if one == group]
        assert max(np.diff(places)) < 5
    assert [marks_in(prompt) for prompt in sent] == [[(len(p) - 2, 300.0)] for p in sent]


class Slow(FakeBackend):
    """Asked over a network, with a limit."""

    rate = 0.1

    @property
    def limits(self) -> Limits:
        return Limits(concurrency=4, requests_per_minute=self.rate)


def test_the_limit_of_a_backend_decides_how_long_prefixes_are_kept() -> None:
    backend = Slow(lambda query, fields: "yes", name="anthropic:claude-sonnet-5")
    for backend.rate, seconds in ((0.1, 3600.0), (100.0, 300.0)):
        plan = planned(prompts_of(2, 6), backend)
        assert plan is not None
        assert plan.keep_for == seconds
    local = FakeBackend(lambda query, fields: "yes", name="openai:gpt-4o-mini")
    assert planned(prompts_of(2, 4), local) is None  # it is not asked over a network


# Tokens of the blocks: rules that all share, then a film, then a row of its own.
RULES, FILM, ROW = 1100, 2000, 10


def blocks(films: int, rows: int) -> Blocks:
    ids = [[0, 1 + film, 100 + film * rows + row] for film in range(films) for row in range(rows)]
    sizes = np.full(100 + films * rows, ROW)
    sizes[0], sizes[1:100] = RULES, FILM
    return Blocks(np.array(ids, np.int32), sizes)


@pytest.mark.parametrize(
    ("films", "rows", "minimum", "most", "expected"),
    [
        pytest.param(6, 5, 1024, None, 1, id="no machine has a limit"),
        pytest.param(6, 5, 1024, 15, 2, id="all are more than a machine takes"),
        pytest.param(15, 1, 1024, 15, 1, id="small groups stay with what more share"),
        pytest.param(6, 1, 1200, 15, 0, id="prefixes below the minimum"),
    ],
)
def test_prompts_of_one_prefix_go_to_one_machine(
    films: int, rows: int, minimum: int, most: float | None, expected: int
) -> None:
    found = together(blocks(films, rows), minimum, most).tolist()
    assert found == [expected] * (films * rows)


def test_prompts_that_begin_alike_are_counted_block_by_block() -> None:
    assert alike(blocks(2, 2)).tolist() == [[4, 2, 1]] * 4
    assert together(Blocks(np.zeros((0, 3), np.int32), np.zeros(1, np.int64)), 1, 15).tolist() == []


@pytest.mark.parametrize(
    ("writers", "gap", "order"),
    [
        pytest.param([-1, 0, 0, -1, 3, 3, -1, 6, 6], 3, [0, 3, 6, 1, 2, 4, 5, 7, 8],
                     id="first requests of groups fill the gap"),
        pytest.param([-1] * 4, 10, [0, 1, 2, 3], id="nothing is shared"),
        pytest.param([], 10, [], id="nothing is sent"),
    ],
)  # fmt: skip
def test_what_writes_a_prefix_is_sent_before_its_readers(
    writers: list[int], gap: int, order: list[int]
) -> None:
    assert staggered(np.array(writers, np.int64), gap).tolist() == order


@given(st.lists(st.integers(0, 10), max_size=30), st.integers(1, 8))
def test_every_request_is_sent_once_and_after_its_writer(choices: list[int], gap: int) -> None:
    writers = np.array(
        [choice - 1 if 0 < choice <= at else -1 for at, choice in enumerate(choices)], np.int64
    )
    order = staggered(writers, gap)
    place = np.argsort(order)
    assert sorted(order.tolist()) == list(range(len(choices)))
    early = 0
    for at, writer in enumerate(writers.tolist()):
        if writer >= 0:
            assert place[at] > place[writer]
            early = max(early, place[at] if place[at] < place[writer] + gap else 0)
    # Whoever is sent too early is so because no first request was left.
    firsts = [place[at] for at, writer in enumerate(writers.tolist()) if writer < 0]
    assert not early or max(firsts) < early


def reply(query: str, fields: Fields) -> str:
    return f"is {fields['id']}"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("openai:gpt-4o-mini", "a word", ("id", "shared")),
        ("anthropic:claude-sonnet-5", "a word", ("id", "shared")),
        ("openai:gpt-4o-mini", SENTENCE * 400, ("shared", "id")),
        ("anthropic:claude-sonnet-5", SENTENCE * 400, ("shared", "id")),
        ("openai:unknown-model", "a word", ("shared", "id")),
    ],
    ids=["too little", "too little, marked", "it pays", "it pays, marked", "no price is known"],
)
def test_rows_and_fields_are_sent_as_written_where_sharing_saves_nothing(
    name: str, text: str, expected: tuple[str, ...]
) -> None:
    for options in ({}, {"guard": 0.9}) if expected[0] == "id" else ({},):
        backend = (FakeBackend if "unknown" in name else Provider)(reply, name=name)
        given: dict[str, Any] = {"ledger": ":memory:", **options}
        with connect(backend, **given) as con:
            found = con.sql(
                "SELECT id, LLM('Is it?', t.*) AS a FROM "
                "(SELECT id, $text || id % 2 AS shared FROM range(12) r(id)) t",
                {"text": text},
            ).fetchall()
        assert sorted(found) == [(number, f"is {number}") for number in range(12)]
        assert [tuple(request.fields) for request in backend.asked] == [expected] * 12
        if expected[0] == "id":  # a guard has nothing to compare
            assert [request.fields["id"] for request in backend.asked] == list(range(12))


def test_a_plan_has_as_many_prompts_as_it_was_given() -> None:
    prompts = prompts_of(3, 4)
    assert len(cache_plan(prompts, replace(MARKED, minimum=1), 2).prompts(prompts)) == 12
