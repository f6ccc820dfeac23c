"""A tenant's spans are its own, unless they are registered for all."""

from __future__ import annotations

from typing import Any, get_args

from relquery.config import POLICIES, RELOCATIONS, PolicyName, Relocation
from relquery.engine.request.commons import Commons
from relquery.engine.request.pieces import Chain, Placing
from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.catalogue import make_policy
from tests.engine.harness import Harness, assert_answered, chain_of, for_each, numbered

DOCUMENT, NESTED = (0, 1, 2, 3, 4, 0, 1, 2), (3, 3, (1, 2, 1, 2, 0), 4, 4)
APART: dict[str, Any] = {"share_prefixes": False}
NEW = -1
"""A token that no prompt had before."""
ALONE = [NEW, DOCUMENT, 8]
AMONG = [0, 1, 2, 3, DOCUMENT, 4, 4, 4, 4, 5]
PLAIN = [*DOCUMENT, 8]


def register(harness: Harness, *prompt: Any) -> None:
    harness.engine.commons.register(Request(-1, chain_of(prompt), 1))


def cached(harness: Harness, tenants: str, prompt: list[Any]) -> list[int | None]:
    """Tokens of a prompt that are cached as one tenant after the other asks it. 0: nobody."""
    found = []
    for tenant in tenants:
        new = 100 + len(harness.executor.requests)
        request = harness.ask([new if p == NEW else p for p in prompt], tenant=tenant.strip("0"))
        assert_answered(request)
        found.append(request.cached)
    return found


@for_each(
    "limits, registered, tenants, prompt, expected",
    [
        ({}, None, "aabb00", ALONE, [0, 8, 0, 8, 0, 8]),
        # Another tenant reads what is before the span; what is after it is its own, too.
        ({}, None, "aba", AMONG, [0, 4, 4 + 8 + 4]),
        ({}, DOCUMENT, "ab0", ALONE, [0, 8, 8]),
        ({}, DOCUMENT, "ab", [NEW, DOCUMENT[:-1], 8], [0, 0]),
        ({}, NESTED[2], "aab", [NEW, NESTED, 8], [0, 9, 5]),
        ({}, None, "ab", PLAIN, [0, 8]),
        # Where prefixes are not shared, what is registered stays so.
        (APART, DOCUMENT, "aab", AMONG, [0, 4 + 8 + 4, 8]),
    ],
)
def test_what_a_tenant_finds_in_the_cache(
    limits: dict[str, Any], registered: Any, tenants: str, prompt: list[Any], expected: list[int]
) -> None:
    harness = Harness(**limits)
    if registered is not None:
        register(harness, registered, 8)
    assert cached(harness, tenants, prompt) == expected


def test_what_is_registered_late_is_computed_once_more_for_all() -> None:
    harness = Harness()
    register(harness, NESTED[2], 8)
    assert cached(harness, "aab", [NEW, NESTED, 8]) == [0, 9, 5]
    register(harness, NESTED, 8)
    assert cached(harness, "ab", [NEW, NESTED, 8]) == [5, 9]  # what it knew was its own


@for_each("relocation", RELOCATIONS)
def test_tenants_spans_are_their_own_however_they_move(relocation: Relocation) -> None:
    harness = Harness(relocation=relocation)
    register(harness, NESTED, 8)
    asked = [cached(harness, "ab", [NEW, *before, DOCUMENT, NESTED, 8]) for before in ((), (7, 7))]
    assert asked == [[0, 9], [17, 17]]


@for_each("policy", POLICIES)
def test_prefixes_that_are_not_shared_are_a_tenants_own_also_within_a_step(
    policy: PolicyName,
) -> None:
    harness = Harness(policy=make_policy(policy), **APART)
    assert cached(harness, "abab00", PLAIN) == [0, 0, 8, 8, 0, 8]
    harness = Harness(policy=make_policy(policy), **APART)
    requests = [harness.submit(PLAIN, 2, tenant=tenant) for tenant in "abab"]
    harness.run()
    assert sorted(request.cached or 0 for request in requests) == [0, 0, 8, 8]


def test_the_host_cache_is_apart_too() -> None:
    harness = Harness(host_tokens=40, **APART)
    for tenant, loaded in zip("abab", [0, 0, 8, 16], strict=True):
        harness.ask(PLAIN, 1, tenant=tenant)
        harness.engine.pool.evict(harness.engine.pool.total)
        assert harness.executor.loaded == loaded


def keys_of(request: Request) -> list[set[bytes]]:
    """The keys of each piece's blocks."""
    pieces = range(len(request.pieces))
    return [set(request.keys(index, request.named_blocks(index, 4), 4)) for index in pieces]


@for_each("placing", get_args(Placing))
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
