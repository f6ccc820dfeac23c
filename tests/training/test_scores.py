"""Scores of the demo model on rows of the demo tables, whose right labels are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.backends.scoring.calibration import corrected, fit_temperature
from relquery.backends.scoring.scores import Scores
from relquery.prompt import Prompt as SpanPrompt
from relquery.prompt import Role, Span
from training.domains.rows import Ask, Row
from training.lessons.generator import DOMAINS
from training.lessons.prompt import Prompt
from training.lessons.tables import rows

YES_NO = ["Yes", "No"]


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    backend = load_backend("demo")
    yield backend
    backend.close()


def asked(table: str, name: str, count: int) -> tuple[Ask, list[Row]]:
    """A question, and the first rows of a bundled table."""
    (domain,) = (domain for domain in DOMAINS if domain.name == table)
    (ask,) = (ask for ask in domain.asks if ask.name == name)
    return ask, rows(domain)[:count]


def prompt_of(ask: Ask, **fields: object) -> SpanPrompt:
    texts = Prompt(ask.queries[0], tuple((name, str(fields[name])) for name in ask.needs))
    return tuple(Span(one["content"], Role(one["role"])) for one in texts.messages)


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
    *scores, without = backend.score([*prompts, free], labels=YES_NO)

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


def test_a_prior_counts_as_it_does_when_it_is_divided_out_by_hand(backend: EmbeddedBackend) -> None:
    ask, table = asked("tickets", "urgent", 6)
    prompts = [prompt_of(ask, **row.fields) for row in table]
    *scores, free = backend.score([*prompts, prompt_of(ask, message="")], labels=YES_NO)
    found = backend.score(prompts, labels=YES_NO, prior=prompt_of(ask, message=""))
    for one, plain in zip(found, scores, strict=True):
        wanted = corrected(plain.log_probabilities, free.log_probabilities)
        assert one.log_probabilities == pytest.approx(wanted, abs=1e-4)
