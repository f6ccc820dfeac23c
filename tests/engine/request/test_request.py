"""A request: its tokens, its block keys, and what it may answer next."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random

import numpy as np

from relquery.engine.requests.pieces import ROOT, chain_keys
from relquery.engine.requests.request import Request, Rules
from relquery.prompt import Finish
from tests.engine.harness import for_each, numbered, tokens_of

END = 99


def request(*output: int, prompt: int = 5) -> Request:
    return Request(0, numbered(prompt), 9, output=list(output))


@for_each("start, stop", [(0, 0), (0, 3), (2, 5), (3, 7), (5, 8), (6, 8), (0, 8), (8, 8)])
def test_tokens_are_those_of_prompt_and_output_in_a_row(start: int, stop: int) -> None:
    tokens = request(10, 11, 12).tokens(0, start, stop)
    assert tokens.tolist() == [0, 1, 2, 3, 4, 10, 11, 12][start:stop]
    assert tokens.dtype.name == "int32"


def test_keys_are_the_chain_of_prompt_and_output() -> None:
    one = request(10, 11, 12, 13, 14)
    expected = chain_keys(one.tokens(0, 0, 9), 3, ROOT)
    assert [one.key(0, index, 3) for index in (2, 0, 1)] == [expected[2], expected[0], expected[1]]


def test_keys_that_are_known_stay_as_the_output_grows() -> None:
    one = request(10)
    first = one.key(0, 1, 3)
    one.output += [11, 12]
    assert one.key(0, 1, 3) == first
    assert one.key(0, 0, 3) == chain_keys(one.pieces[0].tokens[:3], 3, ROOT)[0]


@for_each(
    "computed, output, decoding",
    [(0, (), False), (4, (), True), (5, (7,), True), (5, (7, 8), False), (3, (), False)],
)
def test_a_request_decodes_when_only_its_newest_token_is_left(
    computed: int, output: tuple[int, ...], decoding: bool
) -> None:
    one = request(*output)
    one.pieces[0].done = computed
    assert one.decoding is decoding


CHOICES = ((1, 2), (1, 3, 4), (5,), (5, 6))


@for_each(
    "output, allowed",
    [((), (1, 5)), ((1,), (2, 3)), ((1, 3), (4,)), ((5,), (6, END)), ((5, 6), (END,))],
)
def test_the_next_token_continues_a_choice_or_ends_one_that_another_continues(
    output: tuple[int, ...], allowed: tuple[int, ...]
) -> None:
    rules = Rules(frozenset({END}), CHOICES)
    assert rules.allowed_next(output) == allowed
    assert rules.forced(output) == (allowed[0] if len(allowed) == 1 else None)


def test_without_choices_all_tokens_may_follow() -> None:
    assert Rules().allowed_next((1, 2)) == ()
    assert Rules().finish((1, 2)) is None


@for_each(
    "output, chosen",
    [((), False), ((1,), False), ((1, 2), True), ((5,), False), ((5, 6), True), ((1, 3), False)],
)
def test_an_answer_is_chosen_once_no_other_choice_continues_it(
    output: tuple[int, ...], chosen: bool
) -> None:
    assert (Rules(labels=CHOICES).finish(output) is Finish.STOP) is chosen


def test_two_requests_with_equal_content_are_still_two() -> None:
    assert request() != request()


# ---- keys


def keys(tokens: Sequence[int], size: int, previous: bytes = ROOT) -> list[bytes]:
    return chain_keys(tokens_of(*tokens), size, previous)


def test_a_key_is_sixteen_bytes_and_the_same_in_every_process() -> None:
    (key,) = keys((1, 2, 3), 4)
    assert key.hex() == "b30a3c159d7e8193559a42a84f1fcae1"


def test_keys_are_a_chain_of_digests_whichever_were_computed_before() -> None:
    random = Random(0)
    known: dict[tuple[object, ...], list[bytes]] = {}
    for _ in range(1_500):
        tokens = tuple(random.choices((1, 2), (9, 1), k=random.randrange(14)))
        size, previous = random.randrange(1, 5), random.choice((ROOT, b"other"))
        expected, key = [], previous
        for start in range(0, len(tokens), size):
            part = np.array(tokens[start : start + size], np.int32).tobytes()
            key = blake2b(key + part, digest_size=16).digest()
            expected.append(key)
        assert keys(tokens, size, previous) == expected
        known[size, previous, tokens] = expected
    assert len(known) > 300
