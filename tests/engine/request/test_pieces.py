"""Prompts as pieces: what attends to what, at which positions, under which keys."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.requests.declared import Commons
from relquery.engine.requests.pieces import At, Chain, Keep, Placing, depths
from relquery.engine.requests.request import Request
from tests.engine.harness import (
    Hidden,
    Place,
    Spec,
    chain_of,
    for_each,
    numbered,
    places,
)
from tests.engine.scenarios import Scenario, scenarios

PLACINGS: list[Placing] = ["chain", "bound"]
TOKEN = st.integers(0, 2)  # few, so that different trees hold equal runs of tokens
# A gap or a placeholder is one of few, too.
PART = (
    TOKEN | TOKEN | st.integers(0, 9).map(At) | st.lists(TOKEN, max_size=2).map(tuple).map(Hidden)
)
SPECS = st.lists(
    st.recursive(PART, lambda inner: st.lists(inner, max_size=6).map(tuple), max_leaves=12),
    min_size=1,
    max_size=8,
).map(tuple)


def request(spec: Spec, placing: Placing = "chain") -> Request:
    return Request(0, chain_of(spec), 4, placing=placing)


def pieces_and_places(spec: Spec, placing: Placing) -> list[tuple[int, list[Place]]]:
    """The pieces of a request that have tokens, and the places of these."""
    one, order, found = request(spec, placing), iter(places(spec)), []
    for index, piece in enumerate(one.pieces):
        own = [next(order) for _ in piece.tokens]
        assert [place.token for place in own] == piece.tokens.tolist()
        if own:
            found.append((index, own))
    assert next(order, None) is None
    return found


@given(SPECS, st.sampled_from(PLACINGS))
def test_a_piece_is_a_run_of_one_chain_and_attends_to_what_the_chain_holds_before_it(
    spec: Spec, placing: Placing
) -> None:
    one = request(spec, placing)
    of = dict(pieces_and_places(spec, placing))
    for index, own in of.items():
        piece = one.pieces[index]
        assert all(place.chain is own[0].chain for place in own)
        begin = own[0].begin if placing != "chain" else 0
        assert piece.start == own[0].position + begin
        assert piece.hidden == own[0].hidden
        seen = set()
        for other in range(piece.first, index):
            shift = one.pieces[other].origin - piece.origin
            if one.pieces[other].hidden and one.pieces[other].chain != piece.chain:
                continue
            for i, place in enumerate(of.get(other, [])):
                seen.add((one.pieces[other].start + shift + i - begin, place.meaning))
        assert seen == own[0].visible()


def depths_of(spec: Spec, depth: int = 0) -> list[int]:
    """By token: in how many spans it stands."""
    found: list[int] = []
    for part in spec:
        match part:
            case tuple():
                found += depths_of(part, depth + 1)
            case Hidden(tokens):
                found += [depth] * len(tokens)
            case int():
                found.append(depth)
    return found


@given(SPECS, st.sampled_from(PLACINGS))
def test_a_piece_stands_in_as_many_spans_as_its_tokens(spec: Spec, placing: Placing) -> None:
    one = request(spec, placing)
    found = zip(depths(one.pieces), one.pieces, strict=True)
    assert [depth for depth, piece in found for _ in piece.tokens] == depths_of(spec)


def block_meanings(spec: Spec, placing: Placing, size: int) -> dict[bytes, set[Any]]:
    """By key: what the blocks of that key hold."""
    one = request(spec, placing)
    found: dict[bytes, set[Any]] = defaultdict(set)
    for index, own in pieces_and_places(spec, placing):
        for block in range(one.named_blocks(index, size)):
            inside = own[block * size : (block + 1) * size]
            bound = inside[0].begin if placing == "bound" else 0
            meaning = tuple(place.meaning for place in inside)
            found[one.key(index, block, size)].add((inside[0].position, bound, meaning))
    return found


@given(st.lists(SPECS, min_size=2, max_size=4), st.sampled_from(PLACINGS), st.integers(1, 4))
def test_two_contexts_never_share_a_key_where_what_they_attend_to_differs(
    specs: list[Spec], placing: Placing, size: int
) -> None:
    together: dict[bytes, set[Any]] = defaultdict(set)
    for spec in specs:
        for key, meanings in block_meanings(spec, placing, size).items():
            together[key] |= meanings
    assert all(len(meanings) == 1 for meanings in together.values())


@given(SPECS, st.integers(1, 4))
def test_a_span_has_the_keys_that_it_has_alone(spec: Spec, size: int) -> None:
    """A whole prompt, answered before, is found as a span of another; a part of a block is not."""
    inner = request(spec)
    outer = request((1, spec, 2))
    alone = [inner.key(i, b, size) for i, b in full_blocks(inner, size)]
    inside = {outer.key(i, b, size) for i, b in full_blocks(outer, size)}
    assert set(alone) <= inside


def full_blocks(one: Request, size: int) -> list[tuple[int, int]]:
    return [
        (index, block)
        for index, piece in enumerate(one.pieces)
        for block in range(len(piece.tokens) // size)
    ]


@given(
    spec=SPECS,
    placing=st.sampled_from(PLACINGS),
    size=st.sampled_from([1, 2, 4]),
    wanted=st.lists(st.integers(0, 8), min_size=2, max_size=2),
)
def test_requests_that_share_a_chain_have_the_keys_that_they_have_alone(
    spec: Spec, placing: Placing, size: int, wanted: list[int]
) -> None:
    """Whoever asks for keys first, and however many."""
    chain = chain_of(spec)
    noted = Chain(chain.parts, names=[])

    def around(inner: Chain, token: int) -> Request:
        begin = np.array([token] * token, np.int32)
        return Request(0, Chain((begin, inner, np.array([7], np.int32))), 4, placing=placing)

    for token, count in enumerate(wanted):
        alone, sharing = around(chain, token), around(noted, token)
        assert len(alone.pieces) == len(sharing.pieces)
        for index in range(len(alone.pieces)):
            most = min(count, alone.named_blocks(index, size))
            assert sharing.keys(index, most, size) == alone.keys(index, most, size)
    for token in range(2):
        alone, sharing = around(chain, token), around(noted, token)
        for index in range(len(alone.pieces)):
            count = alone.named_blocks(index, size)
            assert sharing.keys(index, count, size) == alone.keys(index, count, size)


def test_bound_spans_share_keys_only_at_the_same_position() -> None:
    span = (1, 2, 3, 4)
    at_two, at_three = request((9, 9, span, 5), "bound"), request((9, 9, 9, span, 5), "bound")
    again = request((8, 8, span, 5), "bound")
    assert at_two.key(1, 0, 4) != at_three.key(1, 0, 4)
    assert at_two.key(1, 0, 4) == again.key(1, 0, 4)


def test_a_gap_that_is_none_changes_nothing() -> None:
    one, plain = request((1, At(1), 2, At(2), 3, 4)), request((1, 2, 3, 4))
    assert len(one.pieces) == 1
    assert one.key(0, 1, 2) == plain.key(0, 1, 2)


def test_what_follows_a_placeholder_differs_from_what_follows_plain_tokens() -> None:
    hidden, plain = request((1, (2, Hidden((3,)), 4), 5)), request((1, (2, 3, 4), 5))
    gap = request((1, (2, At(2), 4), 5))
    keys = [one.key(len(one.pieces) - 1, 0, 1) for one in (hidden, plain, gap)]
    assert len(set(keys)) == 3
    assert hidden.prompt_tokens == 5
    assert gap.end == plain.end == hidden.end == 5


@for_each("spec", [(1, (), 2), ((), 1, 2), (1, 2, ((), ())), (1, ((),), 2)])
def test_spans_without_tokens_change_nothing(spec: Spec) -> None:
    one, plain = request(spec), request((1, 2))
    assert len(one.pieces) == 1
    assert one.key(0, 0, 2) == plain.key(0, 0, 2)


def test_chains_may_be_nested_deeply() -> None:
    chain = Chain((numbered(2),))
    for depth in range(5_000):
        chain = Chain((chain, numbered(1, depth)))
    one = Request(0, Chain((chain, numbered(1))), 4)
    assert one.prompt_tokens == 5_003
    assert depths(one.pieces) == list(range(5_001, -1, -1))
    last = len(one.pieces) - 1
    assert len(one.key(last, 0, 1)) == 16


def test_what_is_kept_is_all_that_the_chain_has_before_it_in_whole_blocks() -> None:
    first, second = Keep(1, 5.0), Keep(2)
    span = Chain((numbered(3), Keep(3), numbered(3)))
    parts = (numbered(5), first, numbered(5), span, second, numbered(7), Keep(1), numbered(1))
    one = Request(0, Chain(parts), max_tokens=1)
    assert [len(piece.tokens) for piece in one.pieces] == [10, 6, 8]
    for at, piece in enumerate(one.pieces):
        piece.blocks = [10 * at, 10 * at + 1, 10 * at + 2][: -(-len(piece.tokens) // 4)]
    assert one.kept_tokens == (5, 16, 23)
    assert list(one.kept_blocks(4)) == [
        ([0], first),
        ([], Keep(3)),
        ([0, 1, 2], second),
        ([10, 11], second),
        ([], second),
        ([0, 1, 2], Keep(1)),
        ([10, 11], Keep(1)),
        ([20], Keep(1)),
    ]


def test_a_span_without_tokens_does_not_change_what_is_kept() -> None:
    keep = Keep(1)
    parts = (numbered(5), keep, numbered(2), Chain((np.empty(0, np.int32),)), keep, numbered(2))
    one = Request(0, Chain(parts), max_tokens=1)
    assert [piece.keeps for piece in one.pieces] == [((5, keep), (7, keep))]


# ---- spans of tenants


@pytest.mark.parametrize("scenario", scenarios(__file__), ids=str)
def test_scenarios(scenario: Scenario) -> None:
    scenario.run()


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
