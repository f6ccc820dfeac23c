"""Two tables of companies whose names are spelled differently, made up so that the pairs are known.

Some have no partner, and some resemble another company without being it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

LEFT, RIGHT, SHARED, NEAR_MISSES = 30, 40, 22, 8

_FIRST = (
    "Aldous", "Barrow", "Calder", "Dunmore", "Elswick", "Fenton", "Garrick", "Hadley", "Ingram",
    "Jarrow", "Kestrel", "Lomond", "Marlow", "Norbury", "Orwell", "Penrose", "Quarry", "Radley",
    "Selwyn", "Tarrant", "Upton", "Varley", "Wexford", "Yarrow", "Zennor", "Ashby", "Birch",
    "Corbel", "Drayton", "Eastham", "Farrow", "Glanville", "Hollin", "Ilford", "Jessop",
    "Keswick", "Langley", "Morden",
)  # fmt: skip
_SECOND = (
    "Foods", "Motors", "Textiles", "Airlines", "Chemicals", "Shipping", "Printing", "Insurance",
    "Electronics", "Timber", "Dairy", "Pharmaceuticals", "Instruments", "Ceramics", "Logistics",
    "Publishing", "Brewing", "Optics", "Furniture", "Steel",
)  # fmt: skip
_FORMS = ("Inc.", "Ltd", "Corp.", "GmbH", "LLC", "PLC", "Co.", "Group", "Holdings")


@dataclass(frozen=True, slots=True)
class Companies:
    """left, right: names. same: the pairs of names that mean one company."""

    left: list[str]
    right: list[str]
    same: frozenset[tuple[str, str]]


def companies(seed: int) -> Companies:
    """LEFT and RIGHT names, with SHARED companies in both and NEAR_MISSES on the right."""
    rng = Random(f"{seed} companies")
    firsts, seconds = rng.sample(_FIRST, len(_FIRST)), list(_SECOND)
    known = [(first, rng.choice(seconds)) for first in firsts[:LEFT]]
    left = [f"{first} {second}" for first, second in known]
    shared = rng.sample(range(LEFT), SHARED)
    right = [respelled(rng, *known[at]) for at in shared]
    same = frozenset(zip([left[at] for at in shared], right, strict=True))
    for first, second in rng.sample(known, NEAR_MISSES):
        other = rng.choice([each for each in seconds if each != second])
        right.append(f"{first} {other} {rng.choice(_FORMS)}")
    while len(right) < RIGHT:
        first = rng.choice(firsts[LEFT:])
        name = f"{first} {rng.choice(seconds)} {rng.choice(_FORMS)}"
        right += [] if name in right else [name]
    rng.shuffle(right)
    return Companies(left, right, same)


def respelled(rng: Random, first: str, second: str) -> str:
    """Another spelling of a company's name: its form added, and one of CHANGES."""
    name = rng.choice(CHANGES)(rng, first, second)
    return f"{name} {rng.choice(_FORMS)}"


def _capitals(rng: Random, first: str, second: str) -> str:
    return f"{first} {second}".upper()


def _joined(rng: Random, first: str, second: str) -> str:
    return f"{first}{second}"


def _shortened(rng: Random, first: str, second: str) -> str:
    return f"{first} {second[:4]}."


def _swapped(rng: Random, first: str, second: str) -> str:
    return f"{second} {first}"


def _mistyped(rng: Random, first: str, second: str) -> str:
    """Two neighbouring letters have changed places."""
    at = rng.randrange(1, len(first) - 1)
    return f"{first[:at]}{first[at + 1]}{first[at]}{first[at + 2 :]} {second}"


def _both(rng: Random, first: str, second: str) -> str:
    return _mistyped(rng, first, f"{second[:4]}.")


CHANGES = (_capitals, _joined, _shortened, _swapped, _mistyped, _both)
