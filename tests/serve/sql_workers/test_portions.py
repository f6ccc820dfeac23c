"""A statement's prompts leave room in the queue, and come back as one job."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from relquery.backends.local.host import Packed, Sink, Submission
from relquery.engine.requests.declared import Declared
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Finish, Prompt, Sampling, Span
from relquery.serve.errors import HttpError
from relquery.serve.sql_workers.worker import PortionedEngine
from tests.serve.conftest import Running, inside

WINDOW = 8
PROMPTS: list[Prompt] = [(Span(str(at)),) for at in range(21)]


@dataclass
class StandIn:
    """A link whose engine answers one portion at a time."""

    clock: Any = None
    open: dict[Sink, Submission] = field(default_factory=dict)
    dropped: list[Sink] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def submit(self, submission: Submission, sink: Sink) -> bool:
        self.open[sink] = pickle.loads(pickle.dumps(submission))
        self.counts.append(sum(len(each.prompts) for each in self.open.values()))
        return True

    def drop(self, sink: Sink) -> None:
        self.dropped.append(sink)
        del self.open[sink]

    def cancel(self, sink: Sink) -> bool:
        return sink in self.open

    def ask(self, question: str, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        self.counts.append(len(prompts))
        return [int(str(span.content)) for (span,) in prompts]

    def answer(self, which: int = 0) -> None:
        sink = list(self.open)[which]
        for at, (span,) in enumerate(self.open.pop(sink).prompts):
            sink.add(at, Answer(str(span.content), Finish.STOP))
        sink.end(Latency(1, 2, 3))


@dataclass
class Heard:
    """A sink: what has come of a job."""

    answers: dict[int, Answer] = field(default_factory=dict)
    ends: list[tuple[Latency | None, BaseException | None]] = field(default_factory=list)

    __hash__ = object.__hash__

    def piece(self, index: int, piece: Any) -> None:
        """None comes."""

    def add(self, index: int, answer: Answer) -> None:
        assert index not in self.answers
        self.answers[index] = answer

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        self.ends.append((latency, error))


@pytest.fixture
def link() -> StandIn:
    return StandIn()


def begun(
    link: Any, prompts: Sequence[Prompt] = PROMPTS, most: int = 30
) -> tuple[PortionedEngine, Heard]:
    engine, heard = PortionedEngine(link, WINDOW, most), Heard()
    assert engine.submit(Submission(prompts, Sampling(), declared=Declared("q")), heard)
    return engine, heard


@pytest.mark.parametrize("which", [0, -1])
def test_few_prompts_are_open_and_each_has_its_answer(link: StandIn, which: int) -> None:
    engine, heard = begun(link)
    assert len(link.open) == 4
    while link.open:
        assert not heard.ends
        link.answer(which)
    assert max(link.counts) == WINDOW
    assert {at: each.text for at, each in heard.answers.items()} == {
        at: str(at) for at in range(len(PROMPTS))
    }
    assert heard.ends == [(Latency(1, 2, 3), None)]
    assert not engine.cancel(heard)


def test_what_breaks_a_portion_breaks_the_job(link: StandIn) -> None:
    _, heard = begun(link)
    broken = list(link.open)[1]
    del link.open[broken]
    broken.end(None, error := ValueError())
    assert (len(link.dropped), link.open, heard.ends) == (3, {}, [(None, error)])


def test_a_cancelled_job_sends_no_more_and_every_prompt_has_an_answer(link: StandIn) -> None:
    engine, heard = begun(link)
    assert engine.cancel(heard)
    assert {each.finish for each in heard.answers.values()} == {Finish.CANCELLED}
    while link.open:
        link.answer()
    assert (sorted(heard.answers), len(heard.ends)) == ([*range(len(PROMPTS))], 1)
    assert sum(each.text is not None for each in heard.answers.values()) == WINDOW


def test_the_engine_is_told_what_is_still_to_come(link: StandIn) -> None:
    """A job that is sent at once says nothing: others may follow."""
    engine, _ = begun(link, PROMPTS[:WINDOW], most=100)
    assert {each.declared and each.declared.rows for each in link.open.values()} == {None}
    while link.open:
        link.answer()
    for rows in (WINDOW + len(PROMPTS), len(PROMPTS)):
        engine.submit(Submission(PROMPTS, Sampling(), declared=Declared("q")), Heard())
        while link.open:
            assert {each.declared for each in link.open.values()} == {Declared("q", rows)}
            link.answer()


def test_jobs_without_prompts_end(link: StandIn) -> None:
    _, heard = begun(link, [])
    link.answer()
    assert len(heard.ends) == 1


def test_prompts_beyond_those_that_a_statement_may_ask_are_refused(link: StandIn) -> None:
    engine, heard = begun(link)
    with pytest.raises(HttpError, match=r"more than 30 prompts.*--max-rows"):
        engine.submit(Submission(PROMPTS[:10], Sampling()), heard)


def test_prompts_are_counted_some_at_a_time(link: StandIn) -> None:
    engine = PortionedEngine(link, WINDOW, 30)  # type: ignore[arg-type]
    counted = engine.ask("prompt_tokens", PROMPTS, Sampling())
    assert (counted, max(link.counts)) == ([*range(len(PROMPTS))], WINDOW // 4)


def test_packed_prompts_are_read_where_they_are_used() -> None:
    packed = pickle.loads(pickle.dumps(Packed(PROMPTS)))
    assert len(pickle.dumps(packed)) < 2 * len(pickle.dumps(PROMPTS))
    assert (len(packed), list(packed), packed[3:5]) == (len(PROMPTS), PROMPTS, PROMPTS[3:5])


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    """A server whose queue is short."""
    with inside("simulated:step=0.002,length=2", max_waiting=40, max_rows=300) as found:
        yield found


def test_a_long_statement_leaves_room_for_requests_of_others(narrow: Running) -> None:
    statuses: list[int] = []

    def ask(rows: int, question: str) -> httpx.Response:
        body = {"query": f"SELECT LLM('{question}', range) AS a FROM range({rows})"}
        return httpx.post(f"{narrow.url}/v1/sql", json=body, timeout=60)

    def chat(over: threading.Event) -> None:
        body = {"model": "simulated:step=0.002,length=2", "prompt": "Tea"}
        while not over.is_set():
            statuses.append(httpx.post(f"{narrow.url}/v1/completions", json=body).status_code)

    over = threading.Event()
    asking = threading.Thread(target=chat, args=(over,))
    asking.start()
    answer = ask(300, "Good?")
    over.set()
    asking.join()
    report = answer.json()["report"]
    assert (answer.status_code, report["calls"], report["errors"]) == (200, 300, 0)
    assert set(statuses) == {200}
    refused = ask(301, "Bad?")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "too_many_rows")
