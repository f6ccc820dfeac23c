"""Small tables with what makes reordering hard: repeats, NULL, empty text, bags, broken rules."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import strategies as st

from relquery.prices.price import Price
from tests.reordering.reference import Table

VALUES = [None, "", "a", "bb", "bbb", "ccc", "dddd", "é😀", "éclair", 'q"{}', "nul\0"]
TEXTS = [
    "a long passage of words",
    "another one",
    "another two",
    "tower",
    "more " * 5,
    "dddd",
    None,
]
ALIKE = [None, "", "a", "ab", "abc", "abd", "a b c", "a b d", "b c", "b d"]  # that begin alike

_WORD, _WORDS = re.compile(r"\w+|\W"), dict[str, int]()

AUTOMATIC = Price(
    "automatic", "2026-11", "a test", 1.0, 1.0, 0.1, 0.0, minimum=3, granularity=2
)  # free to write, read in steps
PAID = Price("paid", "2026-11", "a test", 1.0, 1.25, 0.1, 0.0, minimum=5, breakpoints=4)
WEIGHTS = ["squared", "tokens", "gpt-4o-mini", AUTOMATIC, PAID]


@st.composite
def tables(
    draw: st.DrawFn,
    max_rows: int = 9,
    max_columns: int = 4,
    *,
    bags: bool = False,
    of: Sequence[str | None] = VALUES,
) -> Table:
    """bags: some columns may be a bag; its rows often hold a passage twice. of: the cells."""
    rows = draw(st.integers(0, max_rows))
    columns = draw(st.integers(1 if rows else 0, max_columns))
    values = st.sampled_from(of)
    row = st.lists(values, min_size=columns, max_size=columns)
    cells = draw(st.lists(row, min_size=rows, max_size=rows))
    classes = draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns))
    bag: list[int] = []
    if bags and columns > 1 and draw(st.booleans()):
        bag = sorted(draw(st.sets(st.sampled_from(range(columns)), min_size=2)))
        passages = draw(st.lists(values, min_size=1, max_size=4))
        for cell in cells:
            for column in bag:
                cell[column] = draw(st.sampled_from(passages))
    return Table(cells, classes, bag)


def letters(texts: list[str]) -> list[list[int]]:
    """A tokenizer: a token per character."""
    return [list(map(ord, text)) for text in texts]


def words(texts: list[str]) -> list[list[int]]:
    """A tokenizer: a token per word, and per character between words."""
    return [[_WORDS.setdefault(word, len(_WORDS)) for word in _WORD.findall(t)] for t in texts]


@st.composite
def rules(draw: st.DrawFn, table: Table) -> list[str]:
    """Dependencies of all kinds on columns outside the bag; most do not hold."""
    free = [name for i, name in enumerate(table.names) if i not in table.bag]
    found = []
    if len(free) > 1:
        for arrow in draw(st.lists(st.sampled_from(["->", "<->"]), max_size=3)):
            a, b = draw(st.permutations(free))[:2]
            found.append(f"{a} {arrow} {b}")
    if len(free) > 2 and draw(st.booleans()):
        a, b, c = draw(st.permutations(free))[:3]
        found.append(f"{a}, {b} -> {c}")
    return found
