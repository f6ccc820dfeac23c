"""Characters in common of any two texts, from those of alphabetical neighbours."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from relquery._native import common_prefix
from relquery.reordering.encode import encode
from relquery.reordering.items import BLOCK, itemize, least_table
from tests.reordering.reference import agreement

TEXTS = st.lists(st.text("aé😀è", max_size=6), min_size=1, max_size=120, unique=True)


@given(TEXTS)
@example([f"{i:04}" for i in range(9 * BLOCK + 3)])
@example([f"{i:04}" for i in range(BLOCK)])
@example(["é", "è"])  # one byte in common, and no character
@example(["😀", "😁", "😀a"])
def test_any_two_texts_share_what_the_neighbours_between_them_do(texts: list[str]) -> None:
    items = itemize(encode({"c": texts}))
    by_rank = [f"c: {text}" for text in sorted(texts)]
    least = least_table(items.shared)
    step = max(len(texts) // 40, 1)
    for a in range(0, len(texts), step):
        for b in range(a + 1, len(texts)):
            expected = agreement(by_rank[a], by_rank[b])
            assert common_prefix(items.shared, least, a, b) == expected
