"""What one request's text, grammar or sampling raises ends that request alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.backends.local.asking import Asking, TextStream
from relquery.backends.local.batches import PromptBatch
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.engine import loop
from relquery.engine.requests.request import Request, Rules
from relquery.engine.step.answer import failed
from relquery.model import sampler
from relquery.model.grammar import SchemaMatcher
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.backends.local.collected import Collected

SCHEMA = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}}}'
KINDS = {
    "plain": Sampling(6),
    "stopped": Sampling(8, stop=("th", "e")),
    "sampled": Sampling(6, temperature=1.5, seed=7),
    "schema": Sampling(12, schema=SCHEMA),
    "drawn schema": Sampling(12, schema=SCHEMA, temperature=1.0, seed=3),
    "logprobs": Sampling(4, logprobs=2),
}
COUNT = 2
Key = tuple[str, int]
Begun = Callable[[Key, PromptBatch, Request], None]
PLACES: dict[str, tuple[object, str]] = {
    "a token is taken in": (loop, "take_in"),
    "the answer is made": (Asking, "answer"),
    "a stop string is looked for": (Rules, "finish"),
    "a token is drawn": (sampler, "_perturbed"),
    "a piece is told": (TextStream, "take"),
    "the last piece is told": (TextStream, "end"),
    "the grammar takes a token": (SchemaMatcher, "take"),
}
MASK = "the grammar's mask is made"


class BrokenError(Exception):
    """What is raised."""


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    opened = load_backend("random:layers=1,hidden=32", max_num_batched_tokens=64)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def undisturbed(backend: EmbeddedBackend) -> dict[Key, Answer]:
    return ask(backend)


def ask(
    backend: EmbeddedBackend, begun: Begun = lambda key, batch, request: None
) -> dict[Key, Answer]:
    """Answers to all kinds of requests, computed in the same steps."""
    opened = {}
    for kind, sampled in KINDS.items():
        prompts = [(Span(f"{kind}, number {number}: "),) for number in range(COUNT)]
        job = opened[kind] = Collected(backend, prompts, sampled, streamed=True)
        assert job.batch is not None
        for request, number in job.batch.open.items():
            begun((kind, number), job.batch, request)
    while any(job.is_open for job in opened.values()):
        backend.batches.step()
    backend.engine.pool.check()
    assert backend.engine.pool.held == 0
    return {(kind, at): answer for kind, job in opened.items() for at, answer in job.answers}


def break_at(
    patch: pytest.MonkeyPatch, place: str, after: int, batch: PromptBatch, victim: Request
) -> None:
    """Have a place raise for one request, after so many calls for it."""
    if place == MASK:
        if isinstance(victim.draw.matcher, SchemaMatcher):
            patch.setattr(victim.draw.matcher, "inner", object())
        return
    holder, name = PLACES[place]
    real = getattr(holder, name)
    assert batch.streams is not None
    of_victim = [victim, victim.draw.matcher, batch.streams[victim]]
    calls = 0

    def called(*args: Any) -> Any:
        nonlocal calls
        seed = hash((victim.draw.seed, len(victim.output)))
        is_seed = name == "_perturbed" and args[1].seed == seed
        is_output = name == "finish" and args[1] is victim.output
        if is_seed or is_output or any(arg is each for arg in args for each in of_victim if each):
            calls += 1
            if calls > after:
                raise BrokenError
        return real(*args)

    patch.setattr(holder, name, called)


def told(answer: Answer) -> tuple[object, ...]:
    return answer.text, answer.tokens, answer.finish


@given(
    st.sampled_from([*PLACES, MASK]),
    st.tuples(st.sampled_from(list(KINDS)), st.integers(0, COUNT - 1)),
    st.integers(0, 3),
)
def test_whatever_a_request_raises_ends_it_alone(
    backend: EmbeddedBackend, undisturbed: dict[Key, Answer], place: str, key: Key, after: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def begun(of: Key, batch: PromptBatch, request: Request) -> None:
            if of == key:
                break_at(patch, place, after, batch, request)

        found = ask(backend, begun)
    victim = found.pop(key)
    assert {of: told(answer) for of, answer in found.items()} == {
        of: told(answer) for of, answer in undisturbed.items() if of != key
    }
    if victim.finish is Finish.ERROR:
        assert "Other prompts are not affected" in (victim.error or "")


@pytest.mark.parametrize("place", [*PLACES, MASK])
def test_each_place_is_reached(backend: EmbeddedBackend, place: str) -> None:
    kinds = {"a stop string": "stopped", "a token is d": "sampled", "a piece": "plain"}
    key = next((kinds[start] for start in kinds if place.startswith(start)), "drawn schema"), 1
    with pytest.MonkeyPatch.context() as patched:

        def begun(of: Key, batch: PromptBatch, request: Request) -> None:
            if of == key:
                break_at(patched, place, 0, batch, request)

        found = ask(backend, begun)
    assert [of for of, answer in found.items() if answer.finish is Finish.ERROR] == [key]
    assert (place == MASK) or "BrokenError" in (found[key].error or "")


def test_a_prompt_that_cannot_be_submitted_is_refused_alone(backend: EmbeddedBackend) -> None:
    real = Request.begin

    def begin(request: Request) -> None:
        if request.prompt_tokens > 60:
            raise BrokenError
        real(request)

    with patch.object(Request, "begin", begin):
        prompts = [(Span(text),) for text in ("one", "x" * 60, "three")]
        answers = Collected(backend, prompts, Sampling(2)).finish()
    ended = {at: answer.finish for at, answer in answers.items()}
    assert ended == {0: Finish.LENGTH, 1: Finish.ERROR, 2: Finish.LENGTH}
    assert failed(BrokenError()) in (answers[1].error or "")
