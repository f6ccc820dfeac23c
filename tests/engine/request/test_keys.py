"""Block keys name a block by everything that it attends to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.request.keys import ROOT, block_key, chain
from tests.engine.harness import numbered, tokens_of

TOKENS = st.lists(st.integers(0, 2), max_size=24)


@given(TOKENS, TOKENS, st.integers(1, 5))
def test_two_blocks_share_a_key_exactly_if_all_tokens_up_to_their_end_agree(
    one: list[int], two: list[int], size: int
) -> None:
    first, second = list(chain(tokens_of(*one), size)), list(chain(tokens_of(*two), size))
    for i, key in enumerate(first):
        for j, other in enumerate(second):
            assert (key == other) == (one[: (i + 1) * size] == two[: (j + 1) * size])


@given(TOKENS, st.integers(1, 5))
def test_only_full_blocks_have_keys(tokens: list[int], size: int) -> None:
    assert len(list(chain(tokens_of(*tokens), size))) == len(tokens) // size


def test_a_chain_may_go_on_from_the_key_of_its_last_block() -> None:
    whole = list(chain(numbered(12), 4))
    begin = list(chain(numbered(8), 4))
    assert [*begin, *chain(numbered(4, start=8), 4, previous=begin[-1])] == whole


def test_a_key_is_sixteen_bytes_and_the_same_in_every_process() -> None:
    assert block_key(ROOT, tokens_of(1, 2, 3)).hex() == "b30a3c159d7e8193559a42a84f1fcae1"


def test_the_same_tokens_in_other_blocks_have_other_keys() -> None:
    assert not set(chain(numbered(12), 4)) & set(chain(numbered(12), 3))
