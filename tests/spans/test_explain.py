"""What a person is told about a query before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relquery import span
from relquery.backends.base import Insight, SpanState
from relquery.errors import ConfigError
from relquery.prompt import Prompt, Sampling
from relquery.spans.explain import explain
from tests.spans.fakes import Fake, read

QUERY = span.chat("judge", span.plus(span.generate("a"), "b"))


class Inspected(Fake, Insight):
    @property
    def insight(self) -> Insight:
        return self

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...]:
        return tuple(SpanState(read((s,)), 7, 3, int(s.reuse.value != "prefix"), 0) for s in prompt)


def test_each_rule_stands_with_what_it_made_of_what() -> None:
    explanation = explain(QUERY)
    rules = [step.rule for step in explanation.steps]
    assert rules == ["desugar_chat", "distribute_plus"]
    text = str(explanation)
    assert "1. desugar_chat at chat" in text
    assert "Optimised:\n  generate\n    seq" in text


def test_a_prompt_that_waits_for_answers_says_so() -> None:
    asks = explain(QUERY).asks
    assert [(ask.where, ask.waits_for) for ask in asks] == [
        ("generate/seq[1]/plus[0]/generate", 0),
        ("generate", 1),
    ]
    assert "generate: waits for 1 other" in str(explain(QUERY))


def test_warm_alone_runs_the_inner_generations_and_shows_the_outermost_prompt() -> None:
    backend = Inspected()
    explain(QUERY, backend)
    assert not backend.calls
    explanation = explain(QUERY, backend, warm=True)
    assert backend.asked == ["a"]
    assert [piece.preview for piece in explanation.asks[-1].pieces] == ["'judge'", "'[a>1]'", "'b'"]
    assert "generate: 21 tokens, 9 in the cache" in str(explanation)
    with pytest.raises(ConfigError, match="Pass a backend"):
        explain(QUERY, warm=True)


def test_without_a_tokenizer_spans_are_shown_without_tokens() -> None:
    explanation = explain(QUERY, Fake(), warm=True)
    pieces = explanation.asks[-1].pieces
    assert [(piece.independent, piece.tokens) for piece in pieces] == [
        (False, None),
        (True, None),
        (True, None),
    ]
    assert "independent  'a ... and its answer of 1 tokens'" in str(explanation)


def test_a_wide_query_is_shown_in_part_with_what_it_all_comes_to() -> None:
    query = span.generate("q", span.plus(span.generate(f"{n}") for n in range(500)))
    text = str(explain(query, Inspected(), warm=True))
    assert len(text.split("\n")) < 150
    assert "... 485 more prompts" in text
    assert "generate: 3,507 tokens, 1,503 in the cache" in text


def test_seconds_are_told_where_the_backend_predicts_them() -> None:
    class Predicting(Inspected):
        def predict(
            self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
        ) -> float:
            return 0.5 * (sum(prompt_tokens) - cached) + sampling.max_tokens

    query = span.generate("q", max_tokens=7)
    assert explain(query, Inspected()).asks[0].seconds is None
    assert "at most" not in str(explain(query, Inspected()))
    explanation = explain(query, Predicting())
    assert explanation.asks[0].seconds == 9
    assert "in the cache, at most 9 s when run alone" in str(explanation)


def test_what_is_nested_stands_further_right() -> None:
    child = span.seq("outer", span.plus("inner"), "again")
    explanation = explain(span.generate("q", span.plus(child, "other")))
    assert [(piece.preview, piece.depth) for piece in explanation.asks[0].pieces] == [
        ("'q'", 0),
        ("'outer'", 1),
        ("'inner'", 2),
        ("'again'", 1),
        ("'other'", 1),
    ]
    assert "independent  'outer'\n  independent    'inner'\n" in str(explanation)
