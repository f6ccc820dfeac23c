"""How much `scripts/bench retrieval` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    model: with random weights. vocabulary: the most tokens of its tokenizer. small: a network whose
    hit rates count, and not its seconds. questions: of SQuAD. shorter: answers have one token in
    this many. times: how often the sides run at most. compared: questions whose answers are
    compared. passages, words: of the made-up corpus. asked: questions of it. tables: pairs of
    tables that are joined.
    """

    model: str = "random:layers=2,hidden=640,heads=10,ffn=2560"
    vocabulary: int = 4_096
    small: str = "random:layers=1,hidden=64,heads=2"
    questions: int = 1_000
    shorter: int = 1
    times: int = 3
    compared: int = 300
    passages: int = 100_000
    words: int = 100
    asked: int = 1_000
    tables: int = 10


FULL = Sizes()
QUICK = Sizes(
    "random:layers=1,hidden=64,heads=2",
    512,
    questions=40,
    shorter=4,
    times=1,
    compared=8,
    passages=2_000,
    asked=50,
    tables=3,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
