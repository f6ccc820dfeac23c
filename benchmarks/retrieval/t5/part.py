"""The paper's T5 over SQuAD on the local engine."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.network import train
from benchmarks.queries.paper.run import ENOUGH_SECONDS, OURS, TABLE_ORDER, Costs, calibrate
from benchmarks.retrieval.sizes import FULL, Sizes, choose
from benchmarks.retrieval.t5.changed import APART, PLACES, REORDERED, Changed, compare
from benchmarks.retrieval.t5.hits import Hits, beside_reorder
from benchmarks.retrieval.t5.hits import measure as measure_hits
from benchmarks.retrieval.t5.run import (
    ANSWERS,
    CONTEXTS,
    RETRIEVED,
    ROWS,
    SEARCHED,
    TOKENS,
    Squad,
    T5Run,
    measure,
    read_squad,
)
from benchmarks.templates import template
from relquery.errors import PartialResultWarning

WORDS = template("retrieval")

GAIN_GOAL, SHARE_GOAL, REACHED_GOAL, NEAR = 1.5, 0.85, 0.98, 0.01
"""NEAR: points between the hit rate that the query's solver says and `bench reorder`'s."""
WARM_UP = 32
"""Rows that are asked before the measured ones; a query's first steps take longer."""
FOUND, GIVEN = "passages(...)", "the file's, as a bag"


@dataclass(slots=True)
class T5(Part):
    """The part. contexts: how many passages are searched. hits: by where passages come from."""

    name = "t5"
    title = "Answers from retrieved passages"
    sizes: Sizes = FULL
    parameters: int = 0
    contexts: int = 0
    costs: Costs | None = None
    ran: T5Run | None = None
    hits: dict[str, Hits] = field(default_factory=dict)
    changed: Changed | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        squad = read_squad(settings.data)
        if squad is None:
            yield from absent()
            return
        squad = squad.first(self.sizes.questions)
        self.contexts = len(squad.contexts)
        self._on_the_engine(squad, settings.seed)
        assert self.ran is not None
        say(", ".join(f"{side} {ran.seconds:.1f} s" for side, ran in self.ran.sides.items()))
        yield from figures(self.ran)
        yield from hit_figures(self.hits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)  # a few prompts are too long
            self.changed = compare(squad.first(self.sizes.compared))
        yield from changed_figures(self.changed)

    def _on_the_engine(self, squad: Squad, seed: int) -> None:
        from benchmarks.stock import parameters
        from relquery.model.load import load

        sizes, prompts = self.sizes, [SEARCHED.calls[0].prompt]
        model = train(sizes.model, squad.rows.to_pylist(), prompts, sizes.vocabulary)
        self.parameters = parameters(model)
        self.costs = calibrate(model, seed)
        measure(model, squad.first(WARM_UP), sizes.shorter, self.costs)
        self.ran = measure(model, squad, sizes.shorter, self.costs, sizes.times)
        small = load(sizes.small, tokenizer=model.tokenizer)
        self.hits[FOUND] = measure_hits(small, squad, SEARCHED)
        self.hits[GIVEN] = beside_reorder(measure_hits(small, squad, RETRIEVED), squad)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if self.ran is None or self.costs is None or self.changed is None:
            return
        yield WORDS.block(
            "t5",
            sql=SEARCHED.sql(self.sizes.shorter),
            rows=self.sizes.questions,
            contexts=self.contexts,
            tokens=TOKENS,
            model=self.sizes.model,
            parameters=self.parameters / 1e6,
            vocabulary=self.sizes.vocabulary,
            warm_up=WARM_UP,
            times=self.sizes.times,
            enough=ENOUGH_SECONDS,
            prompt=1e6 * self.costs.prompt,
            decoded=1e6 * self.costs.decoded,
        )
        yield from table(SIDE_COLUMNS, side_rows(self.ran))
        yield WORDS.block("t5_hits", small=self.sizes.small)
        yield from table(HIT_COLUMNS, [hit_row(*each) for each in self.hits.items()])
        yield WORDS.block(
            "t5_changed",
            compared=len(self.changed.expected),
            tokens=TOKENS,
            unanswered=self.changed.unanswered,
        )
        yield from table(CHANGED_COLUMNS, changed_rows(self.changed))
        yield WORDS.block("t5_missing")


def absent() -> Iterator[Figure]:
    """Figures without the tables."""
    note = f"absent: one of {ROWS}, {CONTEXTS}, {ANSWERS}"
    for name, goal in (
        ("t5_over_as_retrieved", GAIN_GOAL),
        ("t5_of_allowed", SHARE_GOAL),
        ("t5_same_rows", 1.0),
        ("t5_hits_reached", REACHED_GOAL),
    ):
        yield Figure(name, None, goal, note=note)


def figures(at: T5Run) -> Iterator[Figure]:
    """How much faster ours is than the order as retrieved, and modules beside it."""
    exact = at.exact
    seconds = f"{exact.ran[TABLE_ORDER].seconds:.1f} / {exact.ran[OURS].seconds:.1f} s"
    note = f"{seconds}; its tokens allow {exact.allowed:.2f}"
    yield Figure("t5_over_as_retrieved", exact.gain, GAIN_GOAL, note=note)
    note = f"{exact.gain:.2f} of {exact.allowed:.2f} that its tokens allow"
    yield Figure("t5_of_allowed", exact.gain / exact.allowed, SHARE_GOAL, note=note)
    note = (
        "one text of 16 for each set of passages and question, on the three sides without modules"
    )
    yield Figure("t5_same_rows", float(exact.same_rows), 1.0, note=note, any_size=True)
    note = f"ours over modules, {exact.ran[OURS].seconds:.1f} / {at.modules.seconds:.1f} s"
    yield Figure("t5_over_modules", at.over_modules, None, note=note)


def hit_figures(hits: Mapping[str, Hits]) -> Iterator[Figure]:
    """Whether the engine reaches what there is to hit, and the solver what `bench reorder` does."""
    reached = min(hit.reached for hit in hits.values())
    note = "; ".join(f"{name}: {hit.measured:.1%} of {hit.most:.1%}" for name, hit in hits.items())
    yield Figure("t5_hits_reached", reached, REACHED_GOAL, note=note, any_size=True)
    given = hits[GIVEN]
    assert given.counted is not None
    off = abs(given.predicted - given.counted)
    note = f"{given.predicted:.1%} in the query, {given.counted:.1%} in `bench reorder`"
    yield Figure("t5_off_reorder", off, NEAR, at_least=False, note=note, any_size=True)


def changed_figures(at: Changed) -> Iterator[Figure]:
    """Answers of the demo model that differ from those to the same text as retrieved."""
    for name, side in (("t5_modules_changed", APART), ("t5_order_changed", REORDERED)):
        note = f"of {len(at.expected)} answers of the demo model; three passages each"
        yield Figure(name, at.share(side), None, note=note)


SIDE_COLUMNS = (
    "side",
    "seconds",
    "tokens of a prompt",
    "prompt tokens computed",
    "cached",
    "answer tokens",
)


def side_rows(at: T5Run) -> Iterator[tuple[str, ...]]:
    """The lines under SIDE_COLUMNS."""
    for side, ran in at.sides.items():
        yield (
            "cache, as retrieved" if side == TABLE_ORDER else side,
            f"{ran.seconds:.1f}",
            f"{ran.report.prompt_tokens / ran.report.calls:.0f}",
            f"{ran.computed:,}",
            f"{ran.report.hit_rate:.1%}",
            f"{ran.report.output_tokens:,}",
        )


HIT_COLUMNS = (
    "passages",
    "as retrieved",
    "measured",
    "most",
    "measured, fields alone",
    "solver, in characters",
    "`bench reorder`, in characters",
)


def hit_row(name: str, at: Hits) -> tuple[str, ...]:
    """The line under HIT_COLUMNS."""
    return (
        name,
        f"{at.before:.1%}",
        f"{at.measured:.1%}",
        f"{at.most:.1%}",
        f"{at.of_fields:.1%}",
        f"{at.predicted:.1%}",
        "-" if at.counted is None else f"{at.counted:.1%}",
    )


CHANGED_COLUMNS = ("side", "answers that differ from those as retrieved", "right answers")


def changed_rows(at: Changed) -> Iterator[tuple[str, ...]]:
    """The lines under CHANGED_COLUMNS."""
    for side in PLACES:
        yield side, f"{at.share(side):.0%}", f"{at.right(side)} of {at.answerable}"
