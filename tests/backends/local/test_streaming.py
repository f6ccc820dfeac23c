"""Pieces of an answer, joined, are the answer: its text and its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.backends.local.asking import Begun, Piece, TextStream
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.backends.local.collected import Collected

SCHEMA = '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}}}'


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend("random:layers=1,hidden=32")) as opened:
        yield opened


def streamed(
    backend: EmbeddedBackend, count: int, sampling: Sampling
) -> tuple[dict[int, list[Piece]], dict[int, Answer]]:
    prompts = [(Span(f"Number {at} says: "),) for at in range(count)]
    job = Collected(backend, prompts, sampling, streamed=True)
    answers = job.finish()
    return {at: [each for of, each in job.pieces if of == at] for at in range(count)}, answers


def check_joined(pieces: dict[int, list[Piece]], answers: dict[int, Answer]) -> None:
    for at, answer in answers.items():
        assert "".join(piece.text for piece in pieces[at]) == answer.text
        assert sum((piece.tokens for piece in pieces[at]), ()) == answer.tokens
        begun = Begun(answer.prompt_tokens, answer.cached_tokens, answer.kept)
        told = [piece.begun for piece in pieces[at]]  # none for an answer without a token
        assert told == [begun, *[None] * len(told)][: len(told)]


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes_are_cut_only_between_characters(backend: EmbeddedBackend, seed: int) -> None:
    pieces, answers = streamed(backend, 6, Sampling(40, temperature=3.0, seed=seed))
    check_joined(pieces, answers)
    assert max(map(len, pieces.values())) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_may_begin_a_stop_string_is_held_back(backend: EmbeddedBackend, seed: int) -> None:
    stop = ("e", "th", "a b", "\n\n", "qu")
    pieces, answers = streamed(backend, 12, Sampling(60, temperature=2.0, seed=seed, stop=stop))
    check_joined(pieces, answers)
    for parts in pieces.values():
        assert not any(text in "".join(piece.text for piece in parts) for text in stop)


def test_answers_under_a_schema_come_in_pieces_and_a_label_whole(backend: EmbeddedBackend) -> None:
    pieces, answers = streamed(backend, 6, Sampling(60, temperature=2.0, seed=1, schema=SCHEMA))
    check_joined(pieces, answers)
    assert max(map(len, pieces.values())) > 1
    pieces, answers = streamed(backend, 4, Sampling(labels=("Yes", "No, never", "é")))
    check_joined(pieces, answers)
    assert all(len(parts) == 1 for parts in pieces.values())


def test_a_cancelled_batch_gives_no_more_pieces(backend: EmbeddedBackend) -> None:
    job = Collected(backend, [(Span("Go on: "),)], Sampling(200), streamed=True)
    backend.batches.step()
    assert job.batch is not None
    assert backend.cancel(job)
    assert [answer.finish for _, answer in job.answers] == [Finish.CANCELLED]
    assert not job.batch.streams


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_any_cuts_give_the_text_up_to_stop(text: str, stops: list[str], sizes: list[int]) -> None:
    """Tokens of one character each, drawn several at a time, ended where a stop string is whole."""
    found = [text.find(stop) + len(stop) for stop in stops if stop in text]
    drawn = text[: min(found, default=len(text))]
    answer = drawn[: min((drawn.find(stop) for stop in stops if stop in drawn), default=None)]
    stream = TextStream(lambda: Begun(1, 0, ()), lambda ids: "".join(map(chr, ids)), stops)
    output: list[int] = []
    said, at = "", 0
    while output != [ord(each) for each in drawn]:
        output += [ord(each) for each in drawn[len(output) :][: sizes[at % len(sizes)]]]
        at += 1
        if output != [ord(each) for each in drawn] and (piece := stream.take(list(output))):
            said += piece.text
    rest = stream.end(Answer(answer, Finish.STOP, tokens=tuple(output)))
    assert said + (rest.text if rest else "") == answer
