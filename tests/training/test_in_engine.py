"""The demo model inside relquery: its prompts, its answers in any order of fields, its scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import fsum
from typing import Any

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.backends.scoring import Scores, corrected, fit_temperature
from relquery.connection import connect
from relquery.demo import model_path, table_path
from relquery.prompt import Prompt as SpanPrompt
from relquery.prompt import Role, Sampling, Span
from tests.sql.fakes import FakeBackend
from training.domains.rows import Ask, Kind, Row
from training.domains.split import Split
from training.lessons.generator import DOMAINS, examples
from training.lessons.prompt import SYSTEM, Prompt, user_text
from training.lessons.tables import rows


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    backend = load_backend("demo")
    yield backend
    backend.close()


def spans_of(prompt: Prompt) -> SpanPrompt:
    return tuple(Span(one["content"], Role(one["role"])) for one in prompt.messages)


def test_a_query_sends_the_very_text_that_the_model_learned_from() -> None:
    fake = FakeBackend(lambda query, fields: "x")
    with connect(fake, order="original") as con:
        con.register("t", {"title": ['The "Cold" Sea 🙂'], "year": [1999], "info": [None]})
        con.sql("SELECT LLM('Is it good?', t.*) FROM t")
    spans = fake.asked[0].prompt
    texts = {
        role: "".join(str(span.content) for span in spans if span.role is role) for role in Role
    }
    assert texts[Role.SYSTEM] == SYSTEM
    fields: Any = (("title", 'The "Cold" Sea 🙂'), ("year", 1999), ("info", None))
    assert texts[Role.USER] == user_text("Is it good?", fields)


def test_the_engine_answers_as_transformers_own_generate_does(backend: EmbeddedBackend) -> None:
    from training.greedy import Greedy

    asked = [
        example.prompt for kind in Kind for example in islice(examples(3, Split.HELD_OUT, kind), 15)
    ]
    answers = dict(backend.answer([spans_of(prompt) for prompt in asked], Sampling(max_tokens=96)))
    engine = [answers[index].text for index in range(len(asked))]
    assert engine == Greedy(model_path())(asked)


def test_the_order_of_fields_sways_at_most_one_row_in_twenty(backend: EmbeddedBackend) -> None:
    query = (
        "SELECT LLM('Is the review positive? Answer Yes or No.', movies.*) FROM movies "
        "ORDER BY reviewcontent, critic LIMIT 200"
    )
    found = {}
    for order in ("original", "ggr"):
        with connect(backend, ledger=None) as con:
            con.register("movies", table_path("movies"))
            result = con.sql(query, order=order)
            assert not result.errors
            found[order] = result.fetchall()
    agree = sum(a == b for a, b in zip(found["original"], found["ggr"], strict=True))
    assert agree >= 0.95 * len(found["ggr"])


def asked(table: str, name: str, count: int) -> tuple[Ask, list[Row]]:
    """A question, and the first rows of a bundled table."""
    (domain,) = (domain for domain in DOMAINS if domain.name == table)
    (ask,) = (ask for ask in domain.asks if ask.name == name)
    return ask, rows(domain)[:count]


def prompt_of(ask: Ask, **fields: object) -> SpanPrompt:
    return spans_of(Prompt(ask.queries[0], tuple((name, str(fields[name])) for name in ask.needs)))


def half(text: object) -> str:
    """The first half of a field."""
    return str(text)[: len(str(text)) // 2]


def loss(scores: Sequence[Scores], answers: Sequence[str], temperature: float = 1.0) -> float:
    """Negative log-likelihood of the right labels."""
    each = (corrected(one.log_probabilities, None, temperature) for one in scores)
    return -fsum(logs[answer] for logs, answer in zip(each, answers, strict=True))


def test_a_temperature_fitted_to_some_rows_makes_the_right_labels_of_others_likelier(
    backend: EmbeddedBackend,
) -> None:
    ask, table = asked("products", "rating", 100)
    # Half of each text: the model was trained on whole ones, and is as sure of itself.
    halves = [{name: half(row.fields[name]) for name in ask.needs} for row in table]
    prompts = [prompt_of(ask, **fields) for fields in halves]
    scores, answers = backend.score(prompts, labels=list("12345")), [*map(ask.answer, table)]
    temperature = fit_temperature(scores[:50], answers[:50])
    assert temperature > 1.2
    assert loss(scores[50:], answers[50:], temperature) < 0.8 * loss(scores[50:], answers[50:])


def test_a_bias_towards_a_label_is_divided_out_by_what_a_prompt_without_content_says(
    backend: EmbeddedBackend,
) -> None:
    ask, table = asked("tickets", "urgent", 60)
    prompts = [prompt_of(ask, **row.fields) for row in table]
    answers, free = [*map(ask.answer, table)], prompt_of(ask, message="")
    *scores, without = backend.score([*prompts, free], labels=["Yes", "No"])

    def biased(one: Scores) -> dict[str, float]:
        return corrected(one.log_probabilities, {"Yes": -20.0, "No": 0.0})

    def right(found: Sequence[dict[str, float]]) -> int:
        best = [max(logs, key=logs.__getitem__) for logs in found]
        return sum(label == answer for label, answer in zip(best, answers, strict=True))

    honest = right([dict(one.log_probabilities) for one in scores])
    leaning = [biased(one) for one in scores]
    assert honest >= 57
    assert right(leaning) < honest - 5
    assert right([corrected(logs, biased(without)) for logs in leaning]) >= honest - 1
