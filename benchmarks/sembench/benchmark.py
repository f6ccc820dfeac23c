"""`scripts/bench sembench`: SemBench's ten Movie queries, against a stand-in and a small model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import stock
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, in_parts
from benchmarks.sembench.data import QUERIES, SYSTEMS, Scenario, best_of
from benchmarks.sembench.queries import LIKED, QUANTUMANIA, SQL, TAKEN, GoldModel
from benchmarks.sembench.relations import Outcome, outcomes
from benchmarks.templates import template
from relquery.connection import connect

WORDS = template("sembench")
MODELS = Path(__file__).parents[2] / ".real-models"
SHARE, ADDED, MOST_PAIRS, MOST_TEN = 1.55, 8.0, 16_000, 2_047
"""Goals: Q3's tokens by those of the texts; tokens a call of Q9 and Q10 beside text and
instruction; tokens of Q7, and of Q5."""
_RATED = {"Q9": QUANTUMANIA, "Q10": None}


@cache
def counter() -> Callable[[str], int] | None:
    """Counts the tokens of a text as Gemma 3 does; None without its tokenizer."""
    file = MODELS / "gemma3/tokenizer.json"
    if not file.exists():
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def by_characters(text: str) -> int:
    """Tokens of a text where no tokenizer is there."""
    return len(text) // 4


@dataclass(frozen=True, slots=True)
class Run:
    """What a query took, by both counts of tokens, and how good its result is."""

    calls: int
    tokens: int
    characters: int
    usd: float | None
    measure: str
    quality: float
    note: str = ""

    @property
    def quarter(self) -> float:
        """Tokens in and out, as a fourth of the characters."""
        return self.characters / 4


@dataclass(slots=True)
class Tokens(Part):
    """The ten queries against a stand-in that answers from the gold labels."""

    name = "tokens"
    title = "Tokens, calls and dollars"
    lists_reported: ClassVar[bool] = False
    scenario: Scenario | None = None
    runs: dict[str, Run] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        scenario = self.scenario = Scenario.read(settings.data)
        if scenario is None:
            yield Figure("Q1", None, 1.0, at_least=False, note="sembench is absent")
            return
        for name in QUERIES:
            model = _model(scenario)
            with closing(_opened(model, scenario)) as connection:
                self.runs[name] = _run(name, connection, model, scenario)
            yield self._against_published(name, scenario)
        yield from self._against_texts(scenario)
        yield from self._of_pairs()
        yield self._together(scenario)
        exact = {name: run for name, run in self.runs.items() if run.measure != "Spearman"}
        wanted = {"F1": 1.0, "relative error": 0.0}  # gold ratios are of single precision
        right = sum(abs(run.quality - wanted[run.measure]) < 1e-6 for run in exact.values())
        note = "queries whose result is the right one, which the gold labels decide"
        yield Figure("right", float(right), float(len(exact)), note=note, any_size=True)

    def _against_published(self, name: str, scenario: Scenario) -> Figure:
        run, best = self.runs[name], scenario.published[name][0]
        most = max(run.tokens, run.quarter)
        note = (
            f"{run.tokens:,} tokens, {run.quarter:,.0f} as characters / 4, over {best.tokens:,} of "
            f"{best.system}"
        )
        return _at_most(name, most / best.tokens, 1.0, note)

    def _against_texts(self, scenario: Scenario) -> Iterator[Figure]:
        count = counter() or by_characters
        for name in ("Q3", "Q4", "Q8"):
            run, texts = self.runs[name], scenario.texts(TAKEN)
            alone = sum(map(len, texts)) / 4, sum(map(count, texts))
            ratios = run.quarter / alone[0], run.tokens / alone[1]
            note = f"over {alone[0]:,.0f} of the texts alone; {ratios[1]:.2f} in tokens"
            yield _at_most(f"{name}_texts", max(ratios), SHARE, note)
        for name, movie in _RATED.items():
            run, texts = self.runs[name], scenario.texts(movie)
            alone = sum(map(len, texts)) + run.calls * len(LIKED), sum(map(count, texts))
            by_call = (run.characters - alone[0]) / 4 / run.calls
            in_tokens = (run.tokens - alone[1]) / run.calls - count(LIKED)
            note = f"a call, beside text and instruction; {by_call:.1f} as characters / 4"
            yield _at_most(f"{name}_added", max(by_call, in_tokens), ADDED, note)

    def _of_pairs(self) -> Iterator[Figure]:
        for name, most in (("Q7", MOST_PAIRS), ("Q5", MOST_TEN)):
            run = self.runs[name]
            note = f"characters / 4; {run.tokens:,} tokens of Gemma 3"
            yield _at_most(f"{name}_tokens", run.quarter, float(most), note)

    def _together(self, scenario: Scenario) -> Figure:
        model = _model(scenario)
        with closing(_opened(model, scenario)) as connection:
            for name in ("Q3", "Q4", "Q8"):
                connection.sql(SQL[name]).fetchall()
        note = f"tokens of Q3, Q4 and Q8 in one connection over those of Q3; {model.calls} calls"
        return _at_most("together", model.tokens / self.runs["Q3"].tokens, 1.0, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if self.scenario is None:
            return
        published = self.scenario.published
        yield WORDS.block("tokens")
        yield from table(
            ("", "calls", "tokens", "characters / 4", *SYSTEMS),
            [
                (
                    name,
                    f"{run.calls:,}",
                    f"**{run.tokens:,}**",
                    f"{run.quarter:,.0f}",
                    *(_cell(best_of(published[name], system), "tokens", ",") for system in SYSTEMS),
                )
                for name, run in self.runs.items()
            ],
        )
        yield WORDS.block("dollars")
        yield from table(
            ("", "relquery", *SYSTEMS, "right"),
            [
                (
                    name,
                    "-" if run.usd is None else f"**{run.usd:.5f}**",
                    *(_cell(best_of(published[name], system), "usd", ".5f") for system in SYSTEMS),
                    f"{run.measure} {run.quality:.3g}",
                )
                for name, run in self.runs.items()
            ],
        )
        yield WORDS.block("queries")
        for name, query in SQL.items():
            yield f"```sql\n-- {name}\n{query};\n```\n"
        yield f"Q7's report: {self.runs['Q7'].note}."


@dataclass(slots=True)
class Relations(Part):
    """Four relations of reviews, with a label proposed for each."""

    name = "pairs"
    title = "What follows from labels"
    lists_reported: ClassVar[bool] = False
    found: list[Outcome] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        scenario = Scenario.read(settings.data)
        if scenario is None:
            yield Figure("follow", None, 2.0, note="sembench is absent")
            return
        self.found += outcomes(scenario, settings.seed, counter() or by_characters)
        for follows, name in ((True, "follow"), (False, "declined")):
            some = [outcome for outcome in self.found if outcome.relation.follows == follows]
            note = ", ".join(outcome.relation.name for outcome in some)
            value = float(sum(outcome.is_by_labels == follows for outcome in some))
            yield Figure(name, value, float(len(some)), note=note, any_size=True)
        note = "the least precision or recall against asking about each pair"
        least = min(min(outcome.precision, outcome.recall) for outcome in self.found)
        yield Figure("quality", least, 0.9, note=note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("pairs")
        yield from table(
            (
                "relation",
                "labels proposed",
                "decided by",
                "calls",
                "of pairs",
                "precision",
                "recall",
            ),
            [
                (
                    outcome.relation.name,
                    outcome.relation.label,
                    "labels" if outcome.is_by_labels else "each pair",
                    f"{outcome.calls:,}",
                    f"{outcome.pairs:,}",
                    f"{outcome.precision:.3f}",
                    f"{outcome.recall:.3f}",
                )
                for outcome in self.found
            ],
        )


@dataclass(slots=True)
class SmallModel(Part):
    """The queries with a real model of 270 M weights, Q7 aside."""

    name = "gemma3"
    title = "With a small model"
    lists_reported: ClassVar[bool] = False
    runs: dict[str, Run] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        scenario, folder = Scenario.read(settings.data), MODELS / self.name
        if scenario is None or not folder.is_dir():
            note = f"scripts/real-models {self.name}" if scenario else "sembench is absent"
            yield Figure("answered", None, 1.0, note=note)
            return
        stock.set_threads(settings.threads)
        rows = errors = 0
        for name in (query for query in QUERIES if query != "Q7"):
            if settings.quick and name in ("Q1", "Q9", "Q10"):
                continue
            with closing(_opened(str(folder), scenario)) as connection:
                result = connection.sql(SQL[name])
                report, quality = result.report, scenario.quality(name, result.arrow())
                rows += sum(stage.rows for stage in report.stages)
                errors += len(result.errors)
                tokens = report.prompt_tokens + report.output_tokens
                self.runs[name] = Run(report.calls, tokens, 0, None, *quality)
                say(f"{name}: {report.calls} calls, {tokens:,} tokens, {report.seconds:.0f} s")
        note = f"share of {rows:,} rows with an answer"
        yield Figure("answered", 1 - errors / rows, 1.0, note=note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.runs:
            return
        yield WORDS.block(self.name)
        yield from table(
            ("", "calls", "tokens with the chat template", "measure", "value"),
            [
                (name, f"{run.calls:,}", f"{run.tokens:,}", run.measure, f"{run.quality:.3f}")
                for name, run in self.runs.items()
            ],
        )


def _at_most(name: str, value: float, goal: float, note: str) -> Figure:
    return Figure(name, value, goal, at_least=False, note=note, any_size=True)


def _model(scenario: Scenario) -> GoldModel:
    rows: Mapping[str, Any] = {row["reviewText"]: row for row in scenario.reviews.to_pylist()}
    return GoldModel(rows, counter() or by_characters)


def _opened(model: Any, scenario: Scenario) -> Any:
    connection = connect(model, progress=False)
    connection.register("Reviews", scenario.reviews)
    return connection


def _run(name: str, connection: Any, model: GoldModel, scenario: Scenario) -> Run:
    result = connection.sql(SQL[name])
    quality = scenario.quality(name, result.arrow())
    note = "".join(result.report.notes)
    return Run(model.calls, model.tokens, model.characters, result.report.usd, *quality, note)


def _cell(run: Any, what: str, form: str) -> str:
    return "-" if run is None else format(getattr(run, what), form)


BENCHMARK = in_parts(
    "sembench",
    "SemBench's ten Movie queries: tokens, calls and dollars beside the published runs",
    (Tokens, Relations, SmallModel),
    file="sembench.md",
    introduction=WORDS.block("introduction"),
)
