"""The demo model inside relquery: its prompts, its answers in any order of fields, its scores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
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
