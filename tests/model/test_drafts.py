"""Greedy answers with drafts, against the stock network decoding token by token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from relquery.engine.request.drafts import Drafts
from relquery.engine.request.pieces import Placing
from relquery.engine.request.request import Request
from tests.model.oracle.architectures import model_of
from tests.model.oracle.dense import dense_logits
from tests.model.test_scored import (
    ARCHITECTURES,
    COMMON,
    PLAIN,
    SETTINGS,
    SPANNED,
    serve,
    words,
)
from tests.model.test_spans import Spec, dense_chain, engine_chain

TOKENS = 5
WRONG = (5, 6, 7)


@cache
def decoded(name: str, spec: Spec) -> list[int]:
    """The first tokens of the answer, by the stock network over all before each."""
    output: list[int] = []
    for _ in range(TOKENS):
        logits = dense_logits(model_of(name)[1], dense_chain((*spec, *output)))
        output.append(int(logits[-1].argmax()))
    return output


def served(
    name: str, specs: Sequence[Spec], right: int, **limits: Any
) -> tuple[list[Request], int]:
    """Requests with drafts of which one has so many tokens of the answer; and how many steps."""

    def make(number: int, placing: Placing) -> Request:
        likely = tuple(decoded(name, specs[number])[:right])
        drafts = Drafts([WRONG, (*likely, *WRONG), (*likely, 8)])
        chain = engine_chain(specs[number])
        return Request(number, chain, TOKENS, drafts=drafts, placing=placing)

    return serve(name, make, len(specs), **limits)


def check(name: str, right: int, **limits: Any) -> None:
    specs = [*PLAIN, *SPANNED]
    requests, _ = served(name, specs, right, **limits)
    assert [request.output for request in requests] == [decoded(name, spec) for spec in specs]


@pytest.mark.parametrize(
    "name",
    [
        name if name in {"llama", "gpt2", "bloom"} else pytest.param(name, marks=pytest.mark.long)
        for name in ARCHITECTURES
    ],
)
def test_answers_are_those_of_the_stock_network(name: str) -> None:
    check(name, 2)


@pytest.mark.parametrize("right", [0, TOKENS - 1])
def test_answers_are_the_same_however_much_of_a_draft_is_right(right: int) -> None:
    for name in ("llama", "gpt2"):
        check(name, right)


@pytest.mark.parametrize("limits", SETTINGS.values(), ids=SETTINGS)
def test_answers_are_the_same_in_every_setting(limits: dict[str, Any]) -> None:
    check("gemma2", 2, **limits)


def test_right_drafts_give_whole_answers_in_one_step() -> None:
    assert served("llama", PLAIN, TOKENS - 1)[1] == 1
    assert served("llama", PLAIN, 0)[1] >= TOKENS - 1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_prompt_that_is_cached_but_for_its_last_token_has_the_same_answer(name: str) -> None:
    spec = (*COMMON, *words(4))
    first, again = served(name, [spec, spec], 2, max_num_seqs=1)[0]
    assert again.cached == 24
    assert first.output == again.output == decoded(name, spec)
