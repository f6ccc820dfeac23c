"""The query on its sides: three that send the same text, and one with passages as modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.queries.paper.costs import Costs
from benchmarks.queries.paper.run import OURS, SIDES, Measured, Ran, in_turns, serve
from benchmarks.retrieval.t5.squad import AS_MODULES, SEARCHED, Squad

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

MODULES = "modules"


@dataclass(frozen=True, slots=True)
class T5Run:
    """exact: the sides that send the same text. modules: passages are read by themselves."""

    exact: Measured
    modules: Ran

    @property
    def sides(self) -> dict[str, Ran]:
        """All four."""
        return {**self.exact.ran, MODULES: self.modules}

    @property
    def over_modules(self) -> float:
        """Seconds of our order over those with modules."""
        return self.exact.ran[OURS].seconds / self.modules.seconds


def measure(model: ServedModel, squad: Squad, shorter: int, costs: Costs, most: int = 1) -> T5Run:
    """Run all sides in turn, at most so many times; see `in_turns`."""
    tables = squad.tables()
    sides = {
        side: partial(serve, model, tables, SEARCHED, SEARCHED.sql(shorter), side) for side in SIDES
    }
    of_modules = AS_MODULES.sql(shorter)
    sides[MODULES] = partial(serve, model, tables, AS_MODULES, of_modules, OURS)
    ran = in_turns(sides, most)
    modules = ran.pop(MODULES)
    return T5Run(Measured(SEARCHED, ran, costs), modules)
