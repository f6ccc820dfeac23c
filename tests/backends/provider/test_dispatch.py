"""Each prompt has exactly one answer or error, however a server fails, and a server that fails all
is soon left alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from benchmarks.providers.virtual import Answering, ask, refusal, says, written
from relquery.backends.provider.client import RawReply
from relquery.backends.provider.failure_policy import FailFastError
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.reply import Reply
from relquery.errors import BudgetError, ModelError
from relquery.prompt import Sampling

SECONDS = 0.05


def unless(fails: Callable[[str], ProviderError | None]) -> Answering:
    """A server that answers with the question, unless something is told that it fails with."""

    async def answer(question: str) -> Reply:
        await asyncio.sleep(SECONDS)
        if (trouble := fails(question)) is not None:
            raise trouble
        return says(question)

    return answer


well = unless(lambda question: None)


def test_prompts_begin_in_the_order_given_and_at_most_as_many_as_allowed() -> None:
    outcome = ask(well, 200, max_concurrency=7)
    assert outcome.client.asked == [str(number) for number in range(200)]
    assert outcome.client.peak == 7
    assert outcome.seconds == pytest.approx(SECONDS * (1 + 199 / 7), rel=0.05)


def test_a_retry_gives_its_slot_back_while_it_waits() -> None:
    chance = Random(1)
    shaky = unless(lambda _: refusal(500) if chance.random() < 0.1 else None)
    without, with_failures = ask(well, 2_000).seconds, ask(shaky, 2_000)
    assert with_failures.texts == [str(number) for number in range(2_000)]
    assert with_failures.seconds < 1.3 * without


def test_a_prompt_is_tried_again_as_often_as_allowed_and_then_an_error() -> None:
    bad_for_3 = unless(lambda question: refusal(500) if question == "3" else None)
    outcome = ask(bad_for_3, 10, max_retries=4)
    assert [index for index, answer in outcome.answers.items() if answer.error] == [3]
    assert outcome.answers[3].attempts == outcome.client.asked.count("3") == 5
    assert 0 < outcome.seconds < 0.5 + 1 + 2 + 4 + 6 * SECONDS


def test_a_prompt_that_takes_longer_than_the_deadline_is_an_error_and_others_go_on() -> None:
    async def slow_for_3(question: str) -> Reply:
        await asyncio.sleep(100 if question == "3" else SECONDS)
        return says(question)

    outcome = ask(slow_for_3, 10, deadline=5, max_concurrency=2)
    assert [index for index, answer in outcome.answers.items() if answer.error] == [3]
    assert "within 5 seconds. Raise deadline" in str(outcome.answers[3].error)
    assert outcome.seconds == pytest.approx(5, abs=0.5)


def test_what_has_no_answer_when_the_total_time_is_over_is_an_error() -> None:
    outcome = ask(well, 1_000, max_concurrency=10, total_timeout=1)
    assert outcome.seconds == pytest.approx(1, abs=0.01)
    done = [answer for answer in outcome.answers.values() if answer.error is None]
    assert 150 < len(done) < 250
    assert len(outcome.client.asked) < 250, "the rest is not sent"
    errors = Counter(answer.error for answer in outcome.answers.values() if answer.error)
    assert list(errors) == ["No answer within 1 seconds. Raise total_timeout, or ask less at once."]


def test_each_call_is_told_of_before_its_answer_is_of_use() -> None:
    """Also where what came is held back, and where calls are stopped that others fail by."""
    refused = ask(faulty(FAULTS["refusal"], 1.0), 150)
    assert isinstance(refused.error, FailFastError)
    assert not refused.answers
    assert sorted(str(number) for number, _ in refused.told) == sorted(refused.client.asked)
    assert all(answer.prompt_tokens == 100 for _, answer in refused.told)

    async def no_longer(question: str) -> Reply:
        seconds = {"4": 1.0, "10": 2.5, "11": 2.6}
        await asyncio.sleep(seconds.get(question, 0.1 if int(question) < 9 else 100))
        if question == "4":
            raise refusal(401)
        return says(question)

    stopped = ask(no_longer, 150, max_concurrency=8)
    assert isinstance(stopped.error, ModelError)
    told = dict(stopped.told)
    assert len(told) == len(stopped.told) == len(stopped.client.asked) - 1 == 15
    answered = {number: answer.text for number, answer in told.items() if answer.text}
    assert answered == {number: str(number) for number in (0, 1, 2, 3, 5, 6, 7, 8, 10, 11)}
    open_ = [answer for answer in told.values() if answer.text is None]
    assert {answer.error for answer in open_} == {
        "The query was stopped before the answer came, which may be billed."
    }
    assert len(open_) == 5


def test_calls_whose_replies_were_lost_are_told_of_where_their_row_ends_otherwise() -> None:
    async def lost(question: str) -> Reply:
        await asyncio.sleep(SECONDS)
        raise ProviderError("lost", "The connection failed: reset.")

    outcome = ask(lost, 20, budget="2 calls")
    assert isinstance(outcome.error, BudgetError)
    assert sum(answer.attempts for _, answer in outcome.told) == len(outcome.client.asked) == 2


FAULTS: dict[str, Reply | RawReply | ProviderError] = {
    "500": refusal(500),
    "503": refusal(503),
    "hang": ProviderError("late", "No answer within 60 seconds."),
    "reset": ProviderError("lost", "The connection failed: reset."),
    "cut": ProviderError("lost", "The connection failed: incomplete."),
    "broken": ProviderError("broken", "The server broke off: no."),
    "garbage": RawReply("<html>", {}),
    "refusal": says("", refusal="I must not."),
    "wrong types": RawReply('"a text"', {}),
    "400": refusal(400),
}


def faulty(fault: Reply | RawReply | ProviderError, part: float) -> Answering:
    """A server that has the fault for a part of the questions, whenever it is asked them."""

    async def answer(question: str) -> Reply | RawReply:
        await asyncio.sleep(Random(question).uniform(0.01, 0.2))
        if Random(question + "?").random() >= part:
            return says(question)
        if isinstance(fault, ProviderError):
            raise fault
        return fault

    return answer


QUICK = ["503", "cut", "broken", "refusal", "429"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK))
        for name in [*FAULTS, "429"]
    ],
)
def test_a_fault_for_a_fifth_of_the_rows_is_those_rows_error(name: str) -> None:
    fault = refusal(429, retry_after="0.1") if name == "429" else FAULTS[name]
    outcome = ask(faulty(fault, 0.2), 150)
    assert outcome.error is None
    bad = {n for n in range(150) if Random(f"{n}?").random() < 0.2}
    assert len(bad) > 20
    assert {index for index, answer in outcome.answers.items() if answer.error} == bad
    assert all(outcome.answers[n].text == str(n) for n in range(150) if n not in bad)


CONCURRENT = {"500", "cut", "refusal", "400"}  # asked 16 at a time in the quick run, others one


@pytest.mark.parametrize(
    ("name", "concurrency"),
    [
        pytest.param(name, at_once, marks=[pytest.mark.long] * (at_once != quick))
        for name in FAULTS
        for quick in [16 if name in CONCURRENT else 1]
        for at_once in (1, 16)
    ],
)
def test_a_fault_for_all_rows_stops_soon_and_says_why(name: str, concurrency: int) -> None:
    fault = FAULTS[name]
    outcome = ask(faulty(fault, 1), 2_000, max_concurrency=concurrency, max_retries=30)
    assert isinstance(outcome.error, FailFastError)
    assert len(outcome.client.asked) <= concurrency + 20
    reasons = {"refusal": "refused: I must not", "garbage": "not a reply", "wrong types": "not a"}
    expected = fault.words if isinstance(fault, ProviderError) else reasons[name]
    assert expected in str(outcome.error)


def test_a_fault_for_all_rows_stops_soon_though_each_first_refuses_a_setting() -> None:
    seen = set[str]()

    async def fails(question: str) -> Reply:
        if question not in seen:
            seen.add(question)
            said = "temperature is not supported"
            raise ProviderError("status", f"400: {said}", 400, said=said, param="temperature")
        raise refusal(500)

    outcome = ask(fails, 500, max_concurrency=16, max_retries=1)
    assert isinstance(outcome.error, FailFastError)
    assert len(outcome.client.asked) <= 16 + 20


def test_a_server_that_refuses_all_for_now_is_given_up_in_the_end() -> None:
    outcome = ask(faulty(refusal(429), 1), 500, max_retries=3)
    assert isinstance(outcome.error, FailFastError)
    assert "429" in str(outcome.error)
    assert len(outcome.client.asked) < 150


def test_a_server_that_goes_away_and_comes_back_loses_no_row() -> None:
    def is_away(question: str) -> ProviderError | None:
        return refusal(503) if 1 < asyncio.get_running_loop().time() < 4 else None

    outcome = ask(unless(is_away), 1_000)
    assert outcome.texts == [str(number) for number in range(1_000)]
    assert len(outcome.client.asked) < 1_000 + 16 + 20


def test_what_is_counted_is_what_was_sent() -> None:
    async def once(question: str) -> Reply | RawReply:
        if tries[question]:
            return written(says(question, 100, 5))
        tries[question] += 1
        raise refusal(500, retry_after_ms="1")

    tries: Counter[str] = Counter()
    outcome = ask(once, 4, Sampling(), max_concurrency=1, usd=lambda usage: usage.prompt / 100)
    tally = outcome.shared.counter.tally(0.0)
    assert (tally.calls, tally.retries, tally.failures) == (8, 4, 0)
    assert (tally.prompt_tokens, tally.output_tokens, tally.usd) == (400, 20, 4.0)


@pytest.mark.parametrize(
    ("rpm", "tpm", "told"),
    [
        (None, 10, "The limit is 10 tokens a minute, so the next request is sent in"),
        (2, None, "The limit is 2 requests a minute, so the next request is sent in 30 seconds"),
        (60, 10_000, None),
    ],
)
def test_a_limit_that_holds_calls_up_for_long_is_told_of_once(
    rpm: int | None, tpm: int | None, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(well, 4, rpm=rpm, tpm=tpm).error is None
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (told is not None)
    assert told is None or messages[0].startswith(told)
