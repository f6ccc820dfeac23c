"""Two tables of companies whose names are spelled differently, made up so that the pairs are known.

Some have no partner, and some resemble another company without being it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.prompts import read
from benchmarks.retrieval.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.backends.base import Backend
from relquery.connection import connect
from relquery.prompt import Answer, Finish, Prompt, Sampling

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
    right = [respelled(rng, *known[place]) for place in shared]
    same = frozenset(zip([left[place] for place in shared], right, strict=True))
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
    cut = rng.randrange(1, len(first) - 1)
    return f"{first[:cut]}{first[cut + 1]}{first[cut]}{first[cut + 2 :]} {second}"


def _both(rng: Random, first: str, second: str) -> str:
    return _mistyped(rng, first, f"{second[:4]}.")


CHANGES = (_capitals, _joined, _shortened, _swapped, _mistyped, _both)


QUESTION = "Are these the same company?"
JOIN = "SELECT a.name AS one, b.name AS other FROM a JOIN b ON {near}AI_FILTER('{question}', "
FIELDS = "one := a.name, other := b.name)"
NEAR = "AI_SIMILARITY(a.name, b.name) > {threshold} AND "

Pairs = frozenset[tuple[str, str]]


class Knowing(Backend):
    """Answers by the truth. asked: how many prompts."""

    name = "knowing"

    def __init__(self, same: Pairs) -> None:
        self._same, self.asked = same, 0

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend."""
        for index, prompt in enumerate(prompts):
            asked = read(prompt)
            assert asked is not None, "the join asks nothing else"
            is_same = (asked.fields["one"], asked.fields["other"]) in self._same
            self.asked += 1
            yield index, Answer("Yes" if is_same else "No", Finish.STOP)


@dataclass(frozen=True, slots=True)
class Joined:
    """calls: made. pairs: in the result."""

    calls: int
    pairs: Pairs

    def share(self, whole: Joined) -> float:
        """Of another join's pairs."""
        return len(self.pairs & whole.pairs) / len(whole.pairs)


def statement(threshold: float | None) -> str:
    """The join. threshold: of near pairs; None to ask about all."""
    near = "" if threshold is None else NEAR.format(threshold=threshold)
    return JOIN.format(near=near, question=QUESTION) + FIELDS


def join(tables: Companies, threshold: float | None = None) -> Joined:
    """Run the statement, and count its calls."""
    backend = Knowing(tables.same)
    with closing(connect(backend, form="json", ledger=None)) as connection:
        connection.register("a", pa.table({"name": tables.left}))
        connection.register("b", pa.table({"name": tables.right}))
        rows = connection.sql(statement(threshold)).fetchall()
    return Joined(backend.asked, frozenset((str(left), str(other)) for left, other in rows))


WORDS = template("retrieval")

THRESHOLD = 0.2
"""Chosen on the tables of seeds 100 to 105, none of which a run with a smaller seed has."""
SWEEP = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
CALLS_GOAL, PAIRS_GOAL = 300.0, 0.95


@dataclass(frozen=True, slots=True)
class Blocked:
    """A pair of tables, joined. whole: all pairs asked about. near: by threshold, of SWEEP.
    truth: how many pairs there are."""

    whole: Joined
    near: dict[float, Joined]
    truth: int


@dataclass(slots=True)
class Join(Part):
    """The part."""

    name = "join"
    title = "A join by blocking"
    sizes: Sizes = FULL
    found: list[Blocked] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        for number in range(self.sizes.tables):
            known = companies(settings.seed + number)
            near = {threshold: join(known, threshold) for threshold in SWEEP}
            self.found.append(Blocked(join(known), near, len(known.same)))
            say(f"tables {number}: {self.found[-1].near[THRESHOLD].calls} calls")
        yield from figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            "join",
            sql=statement(THRESHOLD),
            tables=len(self.found),
            left=LEFT,
            right=RIGHT,
            shared=SHARED,
            misses=NEAR_MISSES,
            pairs=LEFT * RIGHT,
            threshold=THRESHOLD,
        )
        yield from table(
            ("threshold", "calls: mean", "most", "pairs of the full join: mean", "least"),
            [cells(threshold, self.found) for threshold in SWEEP],
        )
        yield WORDS.block("join_limits")


def figures(found: Sequence[Blocked]) -> Iterator[Figure]:
    """The most calls and the smallest share of pairs at THRESHOLD, and whether the full join is
    right."""
    calls, shares = at_threshold(THRESHOLD, found)
    whole = max(blocked.whole.calls for blocked in found)
    note = f"most of {len(found)} pairs of tables, at threshold {THRESHOLD:g}; all pairs: {whole:,}"
    yield Figure("join_calls", max(calls), CALLS_GOAL, at_least=False, note=note, any_size=True)
    note = f"least of {len(found)} pairs of tables; mean {sum(shares) / len(shares):.1%}"
    yield Figure("join_pairs", min(shares), PAIRS_GOAL, note=note, any_size=True)
    right = sum(len(blocked.whole.pairs) == blocked.truth for blocked in found)
    note = f"full joins that find the pairs there are: {right} of {len(found)}"
    yield Figure("join_full_right", right / len(found), 1.0, note=note, any_size=True)


def at_threshold(threshold: float, found: Sequence[Blocked]) -> tuple[list[int], list[float]]:
    """Calls, and shares of the full join's pairs, by pair of tables."""
    near = [blocked.near[threshold] for blocked in found]
    return [joined.calls for joined in near], [
        joined.share(blocked.whole) for joined, blocked in zip(near, found, strict=True)
    ]


def cells(threshold: float, found: Sequence[Blocked]) -> tuple[str, ...]:
    """The line of a threshold."""
    calls, shares = at_threshold(threshold, found)
    return (
        f"**{threshold:g}**" if threshold == THRESHOLD else f"{threshold:g}",
        f"{sum(calls) / len(calls):.0f}",
        f"{max(calls)}",
        f"{sum(shares) / len(shares):.1%}",
        f"{min(shares):.1%}",
    )
