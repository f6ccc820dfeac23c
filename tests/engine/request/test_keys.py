"""Block keys name a block by everything that it attends to."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.request.keys import ROOT, chain_keys
from tests.engine.harness import tokens_of

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def keys(tokens: Sequence[int], size: int, previous: bytes = ROOT) -> list[bytes]:
    return chain_keys(tokens_of(*tokens), size, previous)


@given(TOKENS, TOKENS, st.integers(1, 5))
def test_two_blocks_share_a_key_exactly_if_all_tokens_up_to_their_end_agree(
    one: list[int], two: list[int], size: int
) -> None:
    for i, key in enumerate(keys(one, size)):
        for j, other in enumerate(keys(two, size)):
            assert (key == other) == (one[: (i + 1) * size] == two[: (j + 1) * size])


@given(TOKENS, st.integers(1, 5))
def test_each_block_has_a_key_even_if_it_is_not_full(tokens: list[int], size: int) -> None:
    assert len(keys(tokens, size)) == -(-len(tokens) // size)


def test_a_chain_may_go_on_from_the_key_of_its_last_block() -> None:
    begin = keys(range(8), 4)
    assert begin + keys(range(8, 12), 4, begin[-1]) == keys(range(12), 4)


def test_a_key_is_sixteen_bytes_and_the_same_in_every_process() -> None:
    (key,) = keys((1, 2, 3), 4)
    assert key.hex() == "b30a3c159d7e8193559a42a84f1fcae1"


def test_the_same_tokens_in_other_blocks_have_other_keys() -> None:
    assert not set(keys(range(12), 4)) & set(keys(range(12), 3))


def test_keys_do_not_depend_on_which_were_computed_before() -> None:
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
