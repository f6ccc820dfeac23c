"""The ledger keeps whole answers, and tells every two questions apart."""

from __future__ import annotations

import itertools

import pytest

from relquery.ledger import Ledger, answer_keys
from relquery.prompt import Answer, Finish, Reuse, Role, Sampling, Span

GREEDY = Sampling()


@pytest.fixture
def ledger():
    memo = Ledger.open()
    yield memo
    memo.close()


@pytest.mark.parametrize("text", ["Yes", "", "a\0b", "🎉", "\ud83c half", "0"])
def test_an_answer_comes_back_as_it_was_except_that_nothing_was_attempted(text, ledger):
    ledger.put([(b"k", Answer(text, Finish.STOP, None, 5, 3, 2))])
    assert ledger.get([b"k", b"other"]) == {b"k": Answer(text, Finish.STOP, None, 5, 0, 2, 0)}


@pytest.mark.parametrize(
    "answer",
    [
        Answer("cut", Finish.LENGTH),
        Answer(None, Finish.ERROR, "failed"),
        Answer(None, Finish.CANCELLED),
        Answer("text", Finish.STOP, "but wrong"),
    ],
)
def test_what_is_no_whole_answer_is_not_kept(answer, ledger):
    ledger.put([(b"k", answer)])
    assert ledger.get([b"k"]) == {}


def test_thousands_of_keys_are_looked_up_at_once(ledger):
    keys = [str(number).encode() for number in range(2001)]
    ledger.put((key, Answer(key.decode(), Finish.STOP)) for key in keys)
    assert len(ledger.get(keys)) == 2001


def test_whatever_differs_in_a_question_gives_another_key():
    prompts = [
        (Span("ab"),),
        (Span("a"), Span("b")),
        (Span("a"), Span("b", begins=True)),
        (Span("ab", Role.SYSTEM),),
        (Span("ab", reuse=Reuse.INDEPENDENT),),
        (Span("ab", position=3),),
        (Span((1, 2)),),
        (Span("(1, 2)"),),
        (Span("a\0"), Span("b")),
        (Span("a"), Span("\0b")),
    ]
    samplings = [GREEDY, Sampling(max_tokens=7), Sampling(allowed=("a",)), Sampling(stop=("a",))]
    keys = [
        key
        for model, sampling in itertools.product(["m", "n"], samplings)
        for key in answer_keys(model, prompts, sampling)
    ]
    assert len(set(keys)) == len(keys) == 80


def test_a_key_depends_on_the_text_alone_and_not_on_objects():
    text = "".join(["x", "y"])
    assert answer_keys("m", [(Span("xy"),)], GREEDY) == answer_keys("m", [(Span(text),)], GREEDY)
