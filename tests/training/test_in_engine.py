"""The demo model inside relquery: the same prompts, the same answers, in any order of fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.connection import connect
from relquery.demo import model_path, table_path
from relquery.prompt import Answer, Finish, Role, Sampling, Span
from relquery.prompt import Prompt as SpanPrompt
from training.domains.rows import Kind
from training.domains.split import Split
from training.lessons.generator import examples
from training.lessons.prompt import SYSTEM, Prompt, user_text


@pytest.fixture(scope="module")
def backend() -> EmbeddedBackend:
    return load_backend("demo")


class Recorder:
    """Answers nothing of worth and keeps what it was asked."""

    name = "recorder"

    def __init__(self) -> None:
        self.prompts: list[SpanPrompt] = []

    def answer(
        self, prompts: Sequence[SpanPrompt], sampling: Sampling
    ) -> Iterator[tuple[int, Answer]]:
        self.prompts += prompts
        yield from ((index, Answer("x", Finish.STOP)) for index in range(len(prompts)))

    def close(self) -> None:
        pass


def test_a_query_sends_the_very_text_that_the_model_learned_from() -> None:
    recorder = Recorder()
    with connect(recorder, order="original") as con:
        con.register("t", {"title": ['The "Cold" Sea 🙂'], "year": [1999], "info": [None]})
        con.sql("SELECT LLM('Is it good?', t.*) FROM t")
    (spans,) = recorder.prompts
    texts = {
        role: "".join(str(span.content) for span in spans if span.role is role) for role in Role
    }
    assert texts[Role.SYSTEM] == SYSTEM
    fields = (("title", 'The "Cold" Sea 🙂'), ("year", 1999), ("info", None))
    assert texts[Role.USER] == user_text("Is it good?", fields)


def test_the_engine_answers_as_transformers_own_generate_does(backend: EmbeddedBackend) -> None:
    from training.greedy import Greedy

    asked = [
        example.prompt for kind in Kind for example in islice(examples(3, Split.HELD_OUT, kind), 15)
    ]
    answers = dict(backend.answer([_spans(prompt) for prompt in asked], Sampling(max_tokens=96)))
    engine = [answers[index].text for index in range(len(asked))]
    assert engine == Greedy(model_path())(asked)


def test_the_order_of_fields_sways_at_most_one_row_in_twenty(backend: EmbeddedBackend) -> None:
    query = (
        "SELECT LLM('Is the review positive? Answer Yes or No.', movies.*) FROM movies "
        "ORDER BY reviewcontent, critic LIMIT 200"
    )
    rows = {}
    for order in ("original", "ggr"):
        with connect(backend, ledger=None) as con:
            con.register("movies", table_path("movies"))
            result = con.sql(query, order=order)  # type: ignore[arg-type]
            assert not result.errors
            rows[order] = result.fetchall()
    agree = sum(a == b for a, b in zip(rows["original"], rows["ggr"], strict=True))
    assert agree >= 0.95 * len(rows["ggr"])


def _spans(prompt: Prompt) -> SpanPrompt:
    roles = {"system": Role.SYSTEM, "user": Role.USER}
    return tuple(Span(one["content"], roles[one["role"]]) for one in prompt.messages)
