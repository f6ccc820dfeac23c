"""An engine in another process answers as one in this process, and its death is survived."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.standin.server import until
from relquery import errors
from relquery.backends.local.asking import Piece
from relquery.backends.local.client import EngineClient, Job
from relquery.backends.local.host import Submission
from relquery.backends.local.service import Engine
from relquery.backends.remote.link import Link
from relquery.errors import ConfigError, EngineEndedError, RelqueryError
from relquery.prompt import Finish, Prompt, Sampling, Span

MODEL = "random:layers=1,hidden=32,context=4096"
LONG = Sampling(max_tokens=3000)


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    opened = Link(MODEL, {"policy": "fcfs"})
    yield opened
    opened.stop()
    assert not opened.submit(Submission(prompts(1), LONG), Heard(opened, 1))


class Heard(Job):
    """A job that remembers pieces."""

    def __init__(self, link: Link, size: int) -> None:
        super().__init__(link, size)
        self.pieces: list[Piece] = []

    def piece(self, index: int, piece: Piece) -> None:
        self.pieces.append(piece)


def prompts(count: int, name: str = "Row") -> list[Prompt]:
    return [(Span(f"{name} {at}."),) for at in range(count)]


def submit(
    link: Link, asked: Sequence[Prompt], sampling: Sampling, *, streamed: bool = False
) -> Heard:
    heard = Heard(link, len(asked))
    assert link.submit(Submission(asked, sampling, streamed=streamed), heard)
    return heard


def test_answers_are_those_of_an_engine_in_this_process(link: Link) -> None:
    with Engine(MODEL, policy="fcfs") as engine:
        expected = [answer.tokens for answer in engine.submit(map(str, range(20))).result()]
    given: list[Prompt] = [(Span(str(at)),) for at in range(20)]
    found = submit(link, given, Sampling()).result(60)
    assert [answer.tokens for answer in found] == expected


def test_pieces_come_before_the_answer(link: Link) -> None:
    heard = submit(link, prompts(1, "Streamed"), Sampling(30), streamed=True)
    (answer,) = heard.result(60)
    assert "".join(piece.text for piece in heard.pieces) == answer.text


def test_many_threads_ask_at_once(link: Link) -> None:
    def ask(at: int) -> int:
        return len(submit(link, prompts(5, f"Thread {at}"), Sampling(5)).result(60))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == [5] * 16
    assert link.open == 0


def test_cancelling_ends_a_job_and_a_dropped_one_leaves_the_engine_empty(link: Link) -> None:
    job = submit(link, prompts(3, "Cancelled"), LONG)
    assert job.cancel()
    assert {answer.finish for answer in job.result(60)} == {Finish.CANCELLED}
    assert not job.cancel()
    for at in range(20):
        link.drop(submit(link, prompts(3, f"Dropped {at}"), LONG, streamed=True))
    until(lambda: link.ask("state").running + link.ask("state").waiting == 0)
    assert link.ask("state").held == 0


def test_what_a_question_or_a_job_raises_is_raised_here(link: Link) -> None:
    wrong = Sampling(schema='{"$ref": "#/nowhere"}')
    with pytest.raises(ConfigError, match="nowhere"):
        link.ask("check", wrong)
    with pytest.raises(ConfigError, match="nowhere"):
        submit(link, prompts(1), wrong).result(60)


def test_a_served_backend_is_a_backend(link: Link) -> None:
    backend = EngineClient(link, link.facts)
    assert backend.name.startswith("random:")
    assert len(list(backend.answer(prompts(4), Sampling(3)))) == 4
    passage = (Span("A passage that is prepared."),)
    backend.prepare([passage])
    states = backend.inspect(passage)
    assert states is not None
    assert (
        sum(state.tokens for state in states) == (backend.prompt_tokens([passage], LONG) or [0])[0]
    )
    taking = backend.answer(prompts(2, "Closed"), LONG)
    taking.close()  # type: ignore[attr-defined]
    until(lambda: link.open == 0)


def test_what_cannot_be_sent_breaks_alone(link: Link) -> None:
    class Local(str):
        """Cannot be pickled, being local."""

    before = submit(link, prompts(1, "Before"), Sampling(3))
    broken = submit(link, [(Span(Local("x")),)], Sampling(3))
    after = submit(link, prompts(1, "After"), Sampling(3))
    with pytest.raises(AttributeError, match="Local"):
        broken.result(60)
    with pytest.raises(AttributeError, match="Local"):
        link.ask("check", Local("x"))
    assert len(before.result(60)) == len(after.result(60)) == 1


def test_a_killed_process_breaks_what_it_was_asked_and_is_started_again(link: Link) -> None:
    running = submit(link, prompts(3, "Running"), LONG, streamed=True)
    until(lambda: bool(running.pieces))
    first, pid = link.starts, link.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineEndedError, match="signal 9"):
        running.result(60)
    assert len(submit(link, prompts(3, "Afterwards"), Sampling(5)).result(60)) == 3
    assert (link.starts, link.open) == (first + 1, 0)
    assert link.pid != pid


@pytest.mark.long
def test_jobs_sent_while_it_dies_end_somehow() -> None:
    """Each ends with answers or with the error; none waits for ever."""
    link = Link(MODEL, {})
    try:
        jobs = []
        for at in range(60):
            jobs.append(submit(link, prompts(2, f"Storm {at}"), Sampling(5)))
            if at == 30:
                assert link.pid is not None
                os.kill(link.pid, signal.SIGKILL)
            time.sleep(0.002)
        until(lambda: link.starts == 2)  # its death may be noticed after the last of them
        jobs.append(submit(link, prompts(2, "Later"), Sampling(5)))
        ends = []
        for job in jobs:
            try:
                ends.append(len(job.result(60)))
            except EngineEndedError:
                ends.append(0)
        assert ends[-1] == 2
        assert 0 in ends
    finally:
        link.stop()


@pytest.mark.long
def test_a_model_that_cannot_be_loaded_says_so_here() -> None:
    with pytest.raises(RelqueryError, match="nowhere"):
        Link("/nowhere/at/all", {})


def test_every_error_survives_the_pipe() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, RelqueryError):
            error = kind.__new__(kind)
            error.args = ("What was said.",)
            vars(error)["estimate"] = 3.5
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.estimate) == (kind, "What was said.", 3.5)
