"""Queries whose provider fails, as `scripts/bench providers --part faults` runs them."""

from __future__ import annotations

import pytest

from benchmarks.providers.parts.faults import MODELS, Failing, Run, run
from benchmarks.providers.standin.faults import Kind


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["500", "garbage", "refusal", "wrong types"])
def test_rows_of_a_provider_that_fails_now_and_then_are_values_or_errors(
    kind: Kind, model: str
) -> None:
    found = run(model, kind, 0.3, 20)
    assert found.stopped == ""
    assert found.lost == found.wrong == 0
    assert 0 < found.errors < 20
    assert found.requests >= 20


@pytest.mark.parametrize("model", MODELS)
def test_a_provider_that_always_fails_stops_the_query(model: str) -> None:
    found = run(model, "garbage", 1.0, 60)
    assert "failed alike" in found.stopped
    assert found.requests < 40
    assert found.lost == 0


def test_the_section_has_a_line_for_each_query() -> None:
    part = Failing()
    part.runs = [Run("m", "500", 0.2, 10, 8, 2, 0, 12, 1.0, "")]
    text = "\n".join(part.render(()))
    assert "| m | 500 | 20% | 10 | 8 | 2 | 12 | 1.0 | all rows |" in text
