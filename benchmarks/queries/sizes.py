"""How much `scripts/bench queries` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    model: with random weights. vocabulary: the most tokens of its tokenizers. rows: of each table
    of the paper's queries. shorter: answers have one token in this many. times: how often each
    runs at most. rows_asked: tickets over which calls are counted. rows_explained: tickets over
    which queries are explained. small: a network that only counts tokens. structs: rows answered
    with a STRUCT, in so many rounds. rows_planned: of the query that is only planned. narrow: a
    network with a short context. groups, characters: how many groups of so many characters are
    aggregated.
    """

    model: str = "random:layers=6,hidden=384,heads=6,ffn=1536"
    vocabulary: int = 4_096
    rows: int = 1_000
    shorter: int = 1
    times: int = 3
    rows_asked: int = 2_000
    rows_explained: int = 400
    structs: int = 64
    rounds: int = 5
    rows_planned: int = 1_000_000
    small: str = "random:layers=1,hidden=64,heads=2"
    narrow: str = "random:layers=1,hidden=64,heads=2,context=2048"
    groups: int = 12
    characters: int = 9_000


FULL = Sizes()
QUICK = Sizes(
    "random:layers=1,hidden=64,heads=2",
    512,
    rows=40,
    shorter=8,
    times=1,
    rows_asked=400,
    rows_explained=100,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
