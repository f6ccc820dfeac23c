"""Tokens are counted by breakpoint, and endings are named, as Anthropic's API does."""

from __future__ import annotations

import pytest

from relquery.prompt import Answer, Finish
from relquery.serve.anthropic.messages import finish_of, usage_of
from relquery.serve.errors import HttpError
from tests.cases import cases


@pytest.mark.parametrize(("cached", "kept", "ttls", "counted"), cases(__file__))
def test_tokens_are_counted_by_breakpoint(
    cached: int, kept: tuple[int, ...], ttls: tuple[str, ...], counted: tuple[int, ...]
) -> None:
    answer = Answer("a", Finish.STOP, None, 100, cached, 7, kept=tuple(kept))
    usage = usage_of(answer, ttls, 7)
    split = usage["cache_creation"]
    assert list(counted) == [
        *(usage["input_tokens"], usage["cache_read_input_tokens"]),
        *(split["ephemeral_5m_input_tokens"], split["ephemeral_1h_input_tokens"]),
    ]
    assert usage["cache_creation_input_tokens"] == sum(split.values())


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (Answer("a", Finish.STOP), ("end_turn", None)),
        (Answer("a", Finish.STOP, stopped_by="."), ("stop_sequence", ".")),
        (Answer("a", Finish.LENGTH, output_tokens=9), ("max_tokens", None)),
        (Answer("a", Finish.LENGTH, output_tokens=8), ("model_context_window_exceeded", None)),
    ],
)
def test_endings_are_named(answer: Answer, ending: tuple[str, str | None]) -> None:
    assert finish_of(answer, 9) == ending


def test_an_answer_that_could_not_be_served_is_an_error() -> None:
    with pytest.raises(HttpError, match="Too long"):
        finish_of(Answer(None, Finish.ERROR, "Too long."), 9)
    with pytest.raises(HttpError, match="cancelled"):
        finish_of(Answer(None, Finish.CANCELLED), 9)
