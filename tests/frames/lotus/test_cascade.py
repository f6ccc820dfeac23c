"""A filter with cascade_args asks the helper_lm first, as in LOTUS."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
import pytest

from relquery.connection import connect
from relquery.errors import ConfigError
from relquery.frames import lotus
from relquery.frames.lotus.models import LM
from relquery.frames.lotus.types import CascadeArgs
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields

TABLE = pd.DataFrame({"t": [f"row {at}" for at in range(300)]})
VERB = "sem_filter"
ARGS = CascadeArgs(recall_target=0.8, precision_target=0.8, failure_probability=0.1)


def is_even(query: str, fields: Fields) -> str:
    return "No" if int(fields["t"].split()[1]) % 2 else "Yes"


def guess(query: str, fields: Fields) -> Answer:
    yes = 0.99 if is_even(query, fields) == "Yes" else 0.01
    scores = {"Yes": math.log(yes), "No": math.log(1 - yes)}
    return Answer("Yes" if yes > 0.5 else "No", Finish.STOP, scores=scores)


@pytest.fixture
def strong() -> Iterator[FakeBackend]:
    backend, helper = FakeBackend(is_even, "strong"), FakeBackend(guess, "helper")
    with connect(backend, form="json", progress=False) as con:
        lm, helping = LM(model=con), LM(model=connect(helper, form="json", progress=False))
        with lotus.settings.context(lm=lm, helper_lm=helping):
            yield backend


def test_a_filter_asks_the_helper_first(strong: FakeBackend) -> None:
    found, stats = getattr(TABLE, VERB)("{t} is even", cascade_args=ARGS, return_stats=True)

    assert len(strong.asked) < 0.7 * len(TABLE)
    assert stats["total_llm_calls"] == len(strong.asked) + len(TABLE)
    assert found["t"].tolist() == TABLE["t"][::2].tolist()


def test_a_cascade_needs_a_helper(strong: FakeBackend) -> None:
    with (
        lotus.settings.context(helper_lm=None),
        pytest.raises(ConfigError, match="none is configured"),
    ):
        getattr(TABLE, VERB)("{t} is even", cascade_args=ARGS)
