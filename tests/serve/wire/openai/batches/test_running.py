"""Lines of a batch become relQueries, without an engine."""

from __future__ import annotations

from typing import Any

from relquery.prompt import Sampling, Span
from relquery.serve.wire.openai.batches.running import grouped
from relquery.serve.wire.openai.choices import Question, choices_of

GREEDY, WARM = Sampling(), Sampling(temperature=1.0)
FORM: Any = None


def asked(text: str, *samplings: Sampling, n: int = 1) -> Question:
    """A line that asks one prompt."""
    return Question(*choices_of([(Span(text),)], samplings, n), FORM)


def test_lines_with_equal_sampling_are_asked_together_in_their_order() -> None:
    lines = [asked("a", GREEDY), asked("b", WARM, n=2), asked("c", GREEDY), asked("d", WARM)]
    groups, places = grouped(lines)
    found = [([prompt[0].content for prompt in prompts], each) for prompts, each in groups]
    assert found == [(["a", "c"], GREEDY), (["b", "b", "d"], WARM)]
    assert places == [(0, 0), (2, 0), (1, 0), (1, 1), (3, 0)]


def test_choices_with_samplings_of_their_own_are_put_back_in_order() -> None:
    prompts = [(Span("a"),), (Span("b"),)]
    groups, places = choices_of(prompts, [GREEDY, WARM], 2)
    assert [len(each) for each, _ in groups] == [2, 2]
    answers: Any = ["a greedy", "b greedy", "a warm", "b warm"]
    in_order = Question(groups, places, FORM).in_order(answers)
    assert list(in_order) == ["a greedy", "a warm", "b greedy", "b warm"]
