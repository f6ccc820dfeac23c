"""Calls of the oracle, beside BARGAIN's own package and the rules of SUPG and LOTUS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from benchmarks.cascade.data import Case, shapes, tables
from benchmarks.cascade.draws import CONFIDENCE, KINDS, TARGET, Kind, Outcome, ours
from benchmarks.cascade.rivals import lotus, supg
from benchmarks.cascade.sizes import FULL, Sizes, choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.peers.environments import DEFAULT, environment
from benchmarks.templates import template

WORDS = template("cascade")
PACKAGE = "bargain==0.1.3"
MOST = 1.1
"""Times BARGAIN's calls, at most."""
OURS, BARGAIN, SUPG, LOTUS = SIDES = ("relquery", "BARGAIN", "SUPG", "LOTUS")
_BUDGETS = (0.1, 0.2, 0.4)
"""Shares of the calls that SUPG and BARGAIN may draw; of each cell the best of them counts."""
_ROOT = Path(__file__).parents[3]

Draws = Sequence[Outcome]


@dataclass(slots=True)
class Calls(Part):
    """The part."""

    name = "calls"
    title = "Calls beside BARGAIN, SUPG and LOTUS"
    lists_reported: ClassVar[bool] = False
    sizes: Sizes = FULL
    found: dict[tuple[str, Kind], dict[str, Draws]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        made = shapes(settings.seed, sizes.share)
        real = tables(settings.data, settings.seed, sizes.rows, say)
        cases = [case for case in (*made, *real) if not len(case.weights)]
        for case in cases:
            for kind in KINDS:
                self.found[case.name, kind] = _compared(case, kind, sizes.compared)
        python = _python(settings, say)
        if python is not None:
            self._add_bargain(cases, python, say)
        for (name, kind), sides in self.found.items():
            shown = ", ".join(f"{side} {_mean(draws):.0f}" for side, draws in sides.items())
            say(f"{name}, {kind}: {shown}")
        yield from self._figures(python is not None)

    def _add_bargain(self, cases: Sequence[Case], python: Path, say: Say) -> None:
        for case in cases:
            say(f"BARGAIN on {case.name}")
            jobs = [_job(case, kind, self.sizes.compared) for kind in KINDS]
            for kind, draws in zip(KINDS, _run(python, jobs), strict=True):
                self.found[case.name, kind][BARGAIN] = [
                    _outcome(case, calls, said) for calls, said in draws
                ]

    def _figures(self, has_bargain: bool) -> Iterator[Figure]:
        for kind in KINDS:
            name = f"{kind}_calls"
            if not has_bargain:
                yield Figure(name, None, MOST, at_least=False, note=f"{PACKAGE} is not installed")
                continue
            sums = {
                side: sum(
                    _mean(sides[side]) for load, sides in self.found.items() if load[1] == kind
                )
                for side in (OURS, BARGAIN)
            }
            note = (
                f"{sums[OURS]:,.0f} over {sums[BARGAIN]:,.0f} of BARGAIN {PACKAGE[9:]}, all cases"
            )
            yield Figure(name, sums[OURS] / sums[BARGAIN], MOST, at_least=False, note=note)
        if has_bargain:
            worst = {
                place: _mean(sides[OURS]) / _mean(sides[BARGAIN])
                for place, sides in self.found.items()
            }
            (case, kind) = max(worst, key=worst.__getitem__)
            value, note = worst[case, kind], f"the worst cell: {case}, {kind}"
            yield Figure("worst_calls", value, MOST, at_least=False, note=note)
        ratio = [_mean(sides[OURS]) / sides[OURS][0].most for sides in self.found.values()]
        note = "share of the calls that are asked, mean of all cells"
        yield Figure("asked", float(np.mean(ratio)), 1.0, at_least=False, note=note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        budgets = ", ".join(f"{share:.0%}" for share in _BUDGETS)
        yield WORDS.block(
            "calls",
            target=TARGET,
            confidence=CONFIDENCE,
            draws=self.sizes.compared,
            package=PACKAGE,
            budgets=budgets,
        )
        for kind in KINDS:
            yield f"**{kind}**"
            yield ""
            yield from table(
                ("case", *SIDES),
                [
                    (name, *(_shown(sides.get(side), place) for side in SIDES))
                    for (name, place), sides in self.found.items()
                    if place == kind
                ],
            )


def _compared(case: Case, kind: Kind, draws: int) -> dict[str, Draws]:
    sides: dict[str, Draws] = {OURS: [ours(case, kind, seed) for seed in range(draws)]}
    by_budget = []
    for share in _BUDGETS:
        budget = max(1, int(share * len(case.yes)))
        some = [supg(case, kind, budget, seed) for seed in range(draws)]
        by_budget.append([outcome for outcome in some if outcome is not None])
    theirs = [lotus(case, kind, seed) for seed in range(draws)]
    if by_budget[0]:
        sides[SUPG] = min(by_budget, key=_mean)
        sides[LOTUS] = [their for their in theirs if their is not None]
    return sides


def _python(settings: Settings, say: Say) -> Path | None:
    """The Python of an environment with BARGAIN; a quick run makes none."""
    folder = (settings.peers or DEFAULT) / "bargain"
    if settings.quick and not folder.exists():
        return None
    return environment(folder, BARGAIN, (PACKAGE,), say)


def _job(case: Case, kind: Kind, draws: int) -> dict[str, Any]:
    needs_budget = kind in ("precision", "recall")
    return {
        "scores": case.scores.tolist(),
        "yes": case.yes.tolist(),
        "kind": kind,
        "target": TARGET,
        "failure": 1 - CONFIDENCE,
        "draws": draws,
        "budgets": [int(share * len(case.yes)) for share in _BUDGETS] if needs_budget else [0],
    }


def _run(python: Path, jobs: Sequence[dict[str, Any]]) -> list[list[tuple[int, list[bool]]]]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps(jobs), encoding="utf-8")
        command = [str(python), "-m", "benchmarks.cascade.programs.bargain", str(file)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=_ROOT)
    draws: list[list[tuple[int, list[bool]]]] = json.loads(done.stdout.splitlines()[-1])
    return draws


def _outcome(case: Case, calls: int, said: Sequence[bool]) -> Outcome:
    asked = np.arange(len(case.yes)) < calls  # which they are does not matter
    return Outcome.of(case, np.array(said, bool), asked)


def _mean(draws: Draws) -> float:
    return float(np.mean([draw.calls for draw in draws]))


def _shown(draws: Draws | None, kind: Kind) -> str:
    if not draws:
        return "-"
    kept = sum(draw.meets(kind) for draw in draws)
    return f"{_mean(draws):,.0f} ({kept} of {len(draws)})"
