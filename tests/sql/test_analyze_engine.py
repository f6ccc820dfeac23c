"""What EXPLAIN predicts of the local engine is what it does, on the movies and a random network."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from relquery import demo_table
from relquery.backends.base import Answers
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.connection import connect
from relquery.model.load import load
from relquery.prompt import Finish, Prompt, Sampling

pytestmark = pytest.mark.long

PROJECTION = "LLM('Which genre?', movieinfo, movietitle)"
POSITIVE = "LLM('Positive?', reviewcontent, movietitle)"
QUERIES = [
    f"SELECT {PROJECTION} FROM movies WHERE {POSITIVE} = 'Yes'",
    f"SELECT LLM('Why?', movies.*) FROM movies WHERE NOT {POSITIVE} = 'Yes' "
    "AND LLM('Long?', reviewcontent) = 'No'",
    f"SELECT CASE WHEN {POSITIVE} = 'Yes' THEN LLM('Why?', movies.*) END FROM movies",
]


class Deciding(EmbeddedBackend):
    """The engine computes one token; a hash of the prompt says Yes or No in its place."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        for index, answer in super().answer(prompts, Sampling(max_tokens=1)):
            whole = "".join(str(span.content) for span in prompts[index])
            is_yes = hashlib.blake2b(whole.encode(), digest_size=1).digest()[0] < 100
            text = "Yes" if is_yes else "No"
            yield index, replace(answer, text=text, finish=Finish.STOP, error=None)


@pytest.fixture(scope="module")
def model() -> Any:
    return load("random:layers=1,hidden=32,heads=1")


@pytest.mark.parametrize("query", QUERIES)
def test_the_first_stage_is_exact_and_later_ones_are_close(query: str, model: Any) -> None:
    with (
        closing(Deciding(model, EngineConfig(cache_tokens=16_384))) as backend,
        closing(connect(backend, order="fixed")) as con,
    ):
        con.register("movies", demo_table("movies"))
        first, *_ = con.explain(query).calls
        stages = con.sql(f"EXPLAIN ANALYZE {query}").arrow().to_pylist()
    if first.counts == "exact":
        counts = (first.rows, first.calls, first.prompt_tokens)
        assert counts == tuple(stages[0][name] for name in ("rows", "calls", "prompt_tokens"))
    assert len(stages) > 1
    for stage in stages:
        assert stage["predicted_prompt_tokens"] == pytest.approx(stage["prompt_tokens"], rel=0.1)
        assert stage["predicted_hit_rate"] == pytest.approx(stage["hit_rate"], abs=0.05)
