"""What one asker has open at a shared engine can be ended from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import relquery as rq
from relquery.errors import CancelledError
from relquery.prompt import Sampling, Span

pytest.importorskip("torch", reason="needs relquery[local]")
LONG = Sampling(max_tokens=200, temperature=1.0, seed=1)


@pytest.fixture(scope="module")
def engine() -> Iterator[rq.Engine]:
    with rq.Engine("random:layers=2,hidden=32,context=512", policy="fcfs") as engine:
        yield engine


def test_whoever_waits_for_a_cancelled_backend_gets_an_error_and_others_their_answers(
    engine: rq.Engine,
):
    backend, other = engine.backend(), engine.backend()
    prompts = [(Span(f"Prompt {at}"),) for at in range(40)]
    found: list[BaseException] = []

    def wait() -> None:
        try:
            list(backend.answer(prompts, LONG))
        except CancelledError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    backend.cancel()
    thread.join(20)
    assert not thread.is_alive()
    assert len(found) == 1
    assert len(list(other.answer(prompts[:2], Sampling(max_tokens=2)))) == 2


def test_a_cancelled_backend_takes_nothing_more(engine: rq.Engine):
    backend = engine.backend()
    backend.cancel()
    with pytest.raises(CancelledError):
        backend.answer([(Span("Hi"),)], Sampling(max_tokens=1))
