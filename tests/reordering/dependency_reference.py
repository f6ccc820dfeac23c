"""Dependencies counted with dictionaries: slow, readable, and what the code in C++ must equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from random import Random

from hypothesis import strategies as st

Data = Mapping[str, Sequence[str | None]]


def rows_to_remove(determinants: Sequence[Hashable], dependents: Sequence[Hashable]) -> int:
    """The fewest rows to remove so that equal determinants have equal dependents."""
    values: defaultdict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for determinant, dependent in zip(determinants, dependents, strict=True):
        values[determinant][dependent] += 1
    return sum(counts.total() - max(counts.values()) for counts in values.values())


def g3(data: Data, determinants: Sequence[str], dependents: Sequence[str]) -> float:
    left = list(zip(*(data[name] for name in determinants), strict=True))
    right = list(zip(*(data[name] for name in dependents), strict=True))
    return rows_to_remove(left, right) / len(left)


@st.composite
def related(draw: st.DrawFn) -> dict[str, list[str | None]]:
    """Columns that are drawn freely, or follow from one or two others, more or less."""
    random = Random(draw(st.integers(0, 2**32 - 1)))  # drawing each cell would take too long
    rows = draw(st.integers(20, 400))
    width = draw(st.integers(2, 4))
    data: dict[str, list[str | None]] = {}
    for column in range(width):
        parents = random.sample(list(data), min(column, draw(st.integers(0, 2))))
        distinct = draw(st.integers(2, 12))
        noise = draw(st.sampled_from([0.0, 0.02, 0.04, 0.2]))
        image: dict[Hashable, int] = {}
        cells: list[str | None] = []
        for row in range(rows):
            key: Hashable = tuple(data[parent][row] for parent in parents) if parents else row
            value = image.setdefault(key, random.randrange(distinct))
            if random.random() < noise:
                value = random.randrange(distinct)
            cells.append([None, "", *"abcdefghij"][value])
        data[f"column {column}"] = cells
    return data
