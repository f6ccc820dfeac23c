"""The beginning of a prompt, up to a span that is to be kept, outlives prompts that come later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.engine.executor import VirtualClock
from relquery.engine.loop import Loop
from relquery.prompt import Answer, Prompt, Sampling, Span

MODEL = "random:layers=2,hidden=64,heads=2,context=512,seed=3"
TOKENS = 1024
SIZE = 16
ONE = Sampling(max_tokens=2)
RULES = "Say good or bad about this. " * 6


@pytest.fixture
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend(MODEL, cache_tokens=TOKENS, block_size=SIZE)) as backend:
        yield backend


def rules(keep: int = 0, seconds: float = 300, text: str = RULES) -> Prompt:
    return Span(text, keep=keep, keep_for=seconds), Span("Review: fine")


def ask(backend: EmbeddedBackend, prompt: Prompt, sampling: Sampling = ONE) -> Answer:
    ((_, answer),) = backend.answer([prompt], sampling)
    backend.engine.pool.check()
    return answer


def storm(backend: EmbeddedBackend, name: str = "") -> None:
    """More other prompts than the cache holds."""
    for number in range(2 * TOKENS // 200):
        ask(backend, (Span(f"{name}{number} " * 60),))


@pytest.mark.parametrize(("keep", "most"), [(1, 2), (1, 1), (0, 2)])
def test_what_is_kept_survives_a_storm(backend: EmbeddedBackend, keep: int, most: int) -> None:
    """Also if the answer has one token; what is not kept does not."""
    assert ask(backend, rules(keep), Sampling(max_tokens=most)).kept == (len(RULES),) * keep
    storm(backend)
    assert ask(backend, rules()).cached_tokens == keep * (len(RULES) // SIZE * SIZE)


def test_what_comes_after_the_span_is_not_kept(backend: EmbeddedBackend) -> None:
    long = (Span(RULES, keep=1), Span("Review: " + "fine " * 40))
    ask(backend, long)
    storm(backend)
    assert ask(backend, long).cached_tokens == len(RULES) // SIZE * SIZE


def test_half_of_the_cache_is_kept_at_most(backend: EmbeddedBackend) -> None:
    for number in range(6):
        ask(backend, rules(keep=1, text=f"{number}: {RULES}"))
    storm(backend)
    assert backend.engine.pool.kept == TOKENS // SIZE // 2
    assert ask(backend, rules(text=f"5: {RULES}")).cached_tokens > 0
    assert ask(backend, rules(text=f"0: {RULES}")).cached_tokens == 0


def test_a_higher_level_is_kept_before_a_lower_one(backend: EmbeddedBackend) -> None:
    ask(backend, rules(keep=2, text=f"hour: {RULES}"))
    for number in range(6):
        ask(backend, rules(keep=1, text=f"{number}: {RULES}"))
    storm(backend)
    assert ask(backend, rules(text=f"hour: {RULES}")).cached_tokens > 0


def test_it_is_kept_for_its_time_since_its_last_use(backend: EmbeddedBackend) -> None:
    clock = VirtualClock()
    engine = backend.engine
    backend.engine = Loop(engine._executor, engine.config, clock)
    backend.batches._engine = backend.engine
    ask(backend, rules(keep=1))
    for _ in range(3):  # each use begins the time anew
        clock.advance(299)
        storm(backend, str(clock.now()))
        assert ask(backend, rules()).cached_tokens > 0
    clock.advance(300)
    storm(backend, "late")
    assert ask(backend, rules()).cached_tokens == 0
    assert backend.engine.pool.kept == 0


def test_keeping_changes_neither_tokens_nor_answers(backend: EmbeddedBackend) -> None:
    text = RULES + "Review: it is\nfine, I think."
    sampling = Sampling(max_tokens=6)
    plain = ask(backend, (Span(text),), sampling)
    for cut in (1, 15, 16, 17, len(RULES) + 14, len(text)):
        kept = ask(backend, (Span(text[:cut], keep=1), Span(text[cut:])), sampling)
        assert replace(kept, cached_tokens=0, kept=()) == replace(plain, cached_tokens=0)
        assert kept.kept == (cut,)


def test_the_stop_string_that_cut_an_answer_is_told(backend: EmbeddedBackend) -> None:
    whole = ask(backend, rules(), Sampling(max_tokens=12)).text
    assert whole
    stop = whole[3]
    at = whole.index(stop)
    cut = ask(backend, rules(), Sampling(max_tokens=12, stop=("\ue000", stop, whole[at:])))
    assert (cut.text, cut.stopped_by) == (whole[:at], stop)
