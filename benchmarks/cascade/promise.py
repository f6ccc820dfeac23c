"""How often the result meets its target, in every case and for every kind of target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.cascade.data import Case, headed, shapes, tables
from benchmarks.cascade.draws import CONFIDENCE, KINDS, TARGET, Kind, holm, ours, too_few
from benchmarks.cascade.sizes import FULL, Sizes, choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.templates import template

WORDS = template("cascade")
LEVEL = 0.01
"""Of the test over all cells."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The draws of one case with one kind of target."""

    kept: int
    """Draws that meet the target."""
    draws: int
    calls: float
    """Asked, of all calls, 0 to 1, on average."""


@dataclass(slots=True)
class Tested(Part):
    """Cases whose promise is tested."""

    lists_reported: ClassVar[bool] = False
    sizes: Sizes = FULL
    cases: list[Case] = field(default_factory=list)
    cells: dict[tuple[str, Kind], Cell] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        for case in self._made(settings, say):
            self.cases.append(case)
            for kind in _kinds(case):
                cell = self.cells[case.name, kind] = _draw(case, kind, sizes.draws)
                say(f"{case.name}, {kind}: {cell.kept} of {cell.draws}, {cell.calls:.0%} asked")
        yield from self._figures()

    @abstractmethod
    def _made(self, settings: Settings, say: Say) -> Iterator[Case]:
        """Its cases."""

    def _figures(self) -> Iterator[Figure]:
        if not self.cells:
            yield Figure(f"{self.name}_p", None, LEVEL, note="what it needs is absent")
            return
        likely = {place: too_few(cell.kept, cell.draws) for place, cell in self.cells.items()}
        (name, kind), cell = min(self.cells.items(), key=lambda one: one[1].kept)
        note = (
            f"smallest p-value of {len(likely)} exact one-sided tests of {self.sizes.draws} draws, "
            "after Holm; each asks whether the share is below the confidence"
        )
        yield Figure(f"{self.name}_p", holm(likely.values()), LEVEL, note=note, any_size=True)
        note = f"{name}, {kind}: {cell.kept} of {cell.draws} draws"
        yield Figure(f"{self.name}_lowest", cell.kept / cell.draws, None, note=note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            self.name, target=TARGET, confidence=CONFIDENCE, draws=self.sizes.draws, level=LEVEL
        )
        yield from table(
            ("case", "what it is", *KINDS),
            [
                (
                    case.name,
                    case.about,
                    *(_shown(self.cells.get((case.name, kind))) for kind in KINDS),
                )
                for case in self.cases
            ],
        )


class Promise(Tested):
    """Made-up cases."""

    name = "promise"
    title = "The promise, for scores of many shapes"

    def _made(self, settings: Settings, say: Say) -> Iterator[Case]:
        return shapes(settings.seed, self.sizes.share)


class Tables(Tested):
    """Real tables with noisy scores."""

    name = "tables"
    title = "The promise, for real tables"

    def _made(self, settings: Settings, say: Say) -> Iterator[Case]:
        return tables(settings.data, settings.seed, self.sizes.rows, say)


class Heads(Tested):
    """A real table with a head that is trained in each draw."""

    name = "heads"
    title = "The promise, for a head on embeddings"

    def _made(self, settings: Settings, say: Say) -> Iterator[Case]:
        return headed(settings.data, self.sizes.rows, say)


def _draw(case: Case, kind: Kind, draws: int) -> Cell:
    outcomes = [ours(case, kind, seed) for seed in range(draws)]
    kept = sum(outcome.meets(kind) for outcome in outcomes)
    calls = sum(outcome.calls for outcome in outcomes) / (draws * len(case.yes))
    return Cell(kept, draws, calls)


def _kinds(case: Case) -> Sequence[Kind]:
    """A head tells yes from no, and has no accuracy of labels."""
    return [kind for kind in KINDS if case.vectors is None or kind != "accuracy"]


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.kept / cell.draws:.3f} ({cell.calls:.0%})"
