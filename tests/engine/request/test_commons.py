"""A tenant's spans are its own, unless they are registered for all."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.config import Relocation
from relquery.engine.request.request import Request
from tests.engine.harness import Harness, chain_of, expected_output

DOCUMENT, NESTED = (0, 1, 2, 3, 4, 0, 1, 2), (3, 3, (1, 2, 1, 2, 0), 4, 4)


def cached(harness: Harness, tenant: str, *prompt: Any) -> int:
    """Serve a prompt alone, after a token that is new; how many of its tokens were cached."""
    request = harness.submit([100 + len(harness.executor.requests), *prompt], tenant=tenant)
    harness.run()
    assert request.output == expected_output(request)
    assert request.cached is not None
    return request.cached


def register(harness: Harness, *prompt: Any) -> None:
    harness.engine.commons.register(Request(-1, chain_of(prompt), 1))


def test_a_tenants_spans_are_its_own() -> None:
    harness = Harness()
    assert cached(harness, "a", DOCUMENT, 8) == 0
    assert cached(harness, "a", DOCUMENT, 8) == 8
    assert cached(harness, "b", DOCUMENT, 8) == 0
    assert cached(harness, "b", DOCUMENT, 8) == 8
    assert cached(harness, "", DOCUMENT, 8) == 0
    assert cached(harness, "", DOCUMENT, 8) == 8


def test_text_after_a_tenants_span_is_its_own_too() -> None:
    harness = Harness()
    prompt = [0, 1, 2, 3, DOCUMENT, 4, 4, 4, 4, 5]
    found = []
    for tenant in "aba":
        request = harness.submit(prompt, tenant=tenant)
        harness.run()
        assert request.output == expected_output(request)
        found.append(request.cached)
    assert found == [0, 4, 4 + 8 + 4]  # another tenant reads what is before the span


def test_spans_that_are_registered_for_all_are_shared() -> None:
    harness = Harness()
    register(harness, DOCUMENT, 8)
    assert cached(harness, "a", DOCUMENT, 8) == 0
    assert cached(harness, "b", DOCUMENT, 8) == 8
    assert cached(harness, "", DOCUMENT, 8) == 8
    assert cached(harness, "b", DOCUMENT[:-1], 8) == 0  # another one


def test_a_span_in_a_span_may_be_registered_alone() -> None:
    harness = Harness()
    register(harness, NESTED[2], 8)
    assert cached(harness, "a", NESTED, 8) == 0
    assert cached(harness, "a", NESTED, 8) == 9
    assert cached(harness, "b", NESTED, 8) == 5
    register(harness, NESTED, 8)
    assert cached(harness, "a", NESTED, 8) == 5  # what it knew was its own
    assert cached(harness, "b", NESTED, 8) == 9


@pytest.mark.parametrize("relocation", ["queries", "keys", "cidra"])
def test_tenants_spans_are_their_own_however_they_move(relocation: Relocation) -> None:
    harness = Harness(relocation=relocation)
    register(harness, NESTED, 8)
    served = [
        cached(harness, tenant, *before, DOCUMENT, NESTED, 8)
        for before in ((), (7, 7))
        for tenant in ("a", "b")
    ]
    assert served == [0, 9, 17, 17]


def test_prompts_without_spans_are_shared() -> None:
    harness = Harness()
    first, second = (harness.submit([*DOCUMENT, 8], tenant=tenant) for tenant in "ab")
    harness.run()
    assert (first.cached, second.cached) == (0, 8)
