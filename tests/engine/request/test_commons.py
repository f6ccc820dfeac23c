"""A tenant's spans are its own, unless they are registered for all."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from relquery.config import POLICIES, PolicyName, Relocation
from relquery.engine.request.commons import Commons
from relquery.engine.request.pieces import Chain, Placing
from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.catalogue import make_policy
from tests.engine.harness import Harness, chain_of, expected_output, numbered

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


APART = {"share_prefixes": False}


@pytest.mark.parametrize("policy", POLICIES)
def test_prefixes_that_are_not_shared_are_a_tenants_own(policy: PolicyName) -> None:
    harness = Harness(policy=make_policy(policy), **APART)
    found = []
    for tenant in ("a", "b", "a", "b", "", ""):
        request = harness.submit([*DOCUMENT, 8], tenant=tenant)
        harness.run()
        assert request.output == expected_output(request)
        found.append(request.cached)
    assert found == [0, 0, 8, 8, 0, 8]


@pytest.mark.parametrize("policy", POLICIES)
def test_tenants_share_nothing_within_a_step(policy: PolicyName) -> None:
    harness = Harness(policy=make_policy(policy), **APART)
    requests = [harness.submit([*DOCUMENT, 8], 2, tenant=tenant) for tenant in "abab"]
    harness.run()
    assert sorted(request.cached or 0 for request in requests) == [0, 0, 8, 8]


def test_the_host_cache_is_apart_too() -> None:
    harness = Harness(host_tokens=40, **APART)
    found = []
    for tenant in ("a", "b", "a", "b"):
        request = harness.submit([*DOCUMENT, 8], 1, tenant=tenant)
        harness.run()
        harness.engine.pool.evict(harness.engine.pool.total)
        assert harness.executor.loaded == sum(found) + (request.cached or 0)
        found.append(request.cached or 0)
    assert found == [0, 0, 8, 8]


def test_what_is_registered_stays_shared_where_prefixes_are_not() -> None:
    harness = Harness(**APART)
    register(harness, DOCUMENT, 8)
    found = []
    for tenant in "aab":
        request = harness.submit([0, 1, 2, 3, DOCUMENT, 4, 4, 4, 4, 5], tenant=tenant)
        harness.run()
        assert request.output == expected_output(request)
        found.append(request.cached)
    assert found == [0, 4 + 8 + 4, 8]


def keys_of(request: Request) -> list[set[bytes]]:
    """The keys of each piece's blocks."""
    pieces = range(len(request.pieces))
    return [set(request.keys(index, request.named_blocks(index, 4), 4)) for index in pieces]


@pytest.mark.parametrize("placing", get_args(Placing))
def test_keys_of_two_tenants_are_disjoint_also_where_requests_share_a_chain(
    placing: Placing,
) -> None:
    commons = Commons(4, share_prefixes=False)
    mine, common = (Chain((numbered(8, start),), names=[]) for start in (50, 70))
    whole = Chain((numbered(8), mine, numbered(5, 20), common, numbered(9, 30)), names=[])
    if placing == "chain":
        commons.register(Request(-1, Chain((common, numbered(1))), 1))
    found = []
    for tenant in ("a", "b", "a", ""):
        request = Request(0, whole, 3, placing=placing)
        commons.claim(request, tenant)
        found.append(keys_of(request))
    a, b, again, nobody = found
    assert a == again
    for number, (one, other, third) in enumerate(zip(a, b, nobody, strict=True)):
        assert one
        is_registered = number == 3 and placing == "chain"
        assert (one == other == third) if is_registered else one.isdisjoint(other)
        assert is_registered or one.isdisjoint(third)
