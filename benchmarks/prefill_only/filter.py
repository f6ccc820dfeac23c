"""A SQL filter over labels: scored in the pass that ends the prompt, or decoded (paper 004).

Labels of two and three tokens share all but the last, so decoding decides late. Each side runs the
complete query on its own engine; their steps alternate (see benchmarks/turns.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say
from benchmarks.spans.setup import Writer
from benchmarks.timed_query import run_query
from benchmarks.turns import Turn, alternate
from relquery.backends.local import core, labels
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request, Rules
from relquery.prompt import Finish

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

FILE = "movies/movies.parquet"
QUERY = """
    SELECT number FROM movies WHERE LLM('Given the review of a movie, say how its critic liked it.
    Answer with one of two labels, and with nothing else.', reviewcontent,
    labels := ['{labels[0]}', '{labels[1]}']) = '{labels[0]}'"""
SCORED, STEPS, SKIPPED = "scored", "a token a step", "forced tokens skipped"
SIDES = (SCORED, STEPS, SKIPPED)
TRIES = 12
Labels = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    model: with random weights. vocabulary: the most tokens of its tokenizer. rows: of the table.
    tokens: label lengths, one query for each. rounds: runs of each side.
    """

    model: str = "random:layers=8,hidden=288,heads=4,ffn=1152"
    vocabulary: int = 4096
    rows: int = 1000
    tokens: tuple[int, ...] = (1, 2, 3)
    rounds: int = 2


FULL = Sizes()
QUICK = Sizes("random:layers=2,hidden=64,heads=2", vocabulary=1024, rows=40, rounds=1)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the query. seconds: of the side's turns. numbers: of the rows that passed.
    prompt_tokens: computed or cached."""

    seconds: float
    numbers: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    errors: int


@dataclass(frozen=True, slots=True)
class Filtered:
    """The query with labels of a given number of tokens, and its runs by side."""

    tokens: int
    labels: Labels
    rows: int
    runs: dict[str, tuple[Run, ...]]

    def seconds(self, side: str) -> float:
        """The median of a side's runs, in seconds."""
        return median(run.seconds for run in self.runs[side])

    def spread(self, side: str) -> str:
        """A side's fastest and slowest run."""
        seconds = [run.seconds for run in self.runs[side]]
        return f"{min(seconds):.2f} to {max(seconds):.2f}"

    def gain(self, side: str) -> float:
        """Seconds of a side divided by ours: the median over rounds in which both take turns."""
        pairs = zip(self.runs[side], self.runs[SCORED], strict=True)
        return median(run.seconds / scored.seconds for run, scored in pairs)

    @property
    def equal(self) -> float:
        """Share of the rows that have the same answer (one of the two labels) in every run."""
        every = [run for runs in self.runs.values() for run in runs]
        if any(run.errors for run in every):
            return 0.0
        passed = Counter(number for run in every for number in run.numbers)
        return 1 - sum(1 for count in passed.values() if count < len(every)) / self.rows


class StepByStep(Loop):
    """Constrained decoding without look-ahead: every token of an answer takes its own step,
    including forced tokens and the end token."""

    def submit(
        self,
        request: Request,
        tenant: str = "",
        arrival: float | None = None,
        declared: Declared = NOTHING,
    ) -> RelQuery:
        """See Loop.submit. The end takes one more token."""
        if request.rules.labels:
            request.max_tokens += 1
            request.rules = _EachToken(request.rules.end, request.rules.labels)
        return super().submit(request, tenant, arrival, declared)


@dataclass(frozen=True, slots=True)
class _EachToken(Rules):
    """Labels whose answers are only ended by the end token."""

    def finish(self, output: Sequence[int]) -> Finish | None:
        del output
        return None

    def forced(self, output: Sequence[int]) -> int | None:
        del output
        return None


def measure(sizes: Sizes, data: Path, seed: int, say: Say) -> list[Filtered]:
    """Run the query with labels of each length, all sides in turn; [] without the table."""
    from relquery.model.load import load
    from relquery.model.networks.random import train_tokenizer

    path = data / FILE
    if not path.exists():
        say(f"{path} is absent")
        return []
    table = pq.read_table(path, columns=["reviewcontent"]).slice(0, sizes.rows)
    table = table.append_column("number", pa.array(range(table.num_rows)))
    texts = [str(text) for text in table["reviewcontent"].to_pylist()]
    model = load(sizes.model, tokenizer=train_tokenizer(texts, sizes.vocabulary))
    return [_filter(model, table, tokens, sizes.rounds, seed, say) for tokens in sizes.tokens]


def figures(found: Sequence[Filtered]) -> Iterator[Figure]:
    """The figures of the benchmark."""
    by_tokens = {each.tokens: each for each in found}
    for tokens, name in ((2, "two"), (3, "three")):
        filtered = by_tokens.get(tokens)
        figure = f"filter_speedup_{name}_tokens"
        if filtered is None:
            yield Figure(figure, None, 1.0, note=_ABSENT)
        else:
            yield Figure(figure, filtered.gain(STEPS), 1.0, note=_note(filtered, STEPS, SKIPPED))
    if 1 not in by_tokens:
        yield Figure("filter_one_token", None, 1.0, note=_ABSENT)
        yield Figure("filter_same_answers", None, 1.0, note=_ABSENT)
        return
    single = by_tokens[1]
    first, other = sorted((STEPS, SKIPPED), key=single.gain)
    yield Figure("filter_one_token", single.gain(first), 1.0, note=_note(single, first, other))
    passed = ", ".join(
        f"{len(filtered.runs[SCORED][0].numbers):,} of {filtered.rows:,}" for filtered in found
    )
    equal = min(filtered.equal for filtered in found)
    note = f"all sides and runs; passed: {passed}"
    yield Figure("filter_same_answers", equal, 1.0, note=note, any_size=True)


COLUMNS = ("labels", "side", "median seconds", "runs", "over scored")


def rows(found: Sequence[Filtered]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each query and side, under COLUMNS."""
    for filtered in found:
        for side in SIDES:
            runs = " ".join(f"{run.seconds:.2f}" for run in filtered.runs[side])
            labels = f"{filtered.tokens} token{'s' * (filtered.tokens > 1)}"
            yield labels, side, f"{filtered.seconds(side):.2f}", runs, f"{filtered.gain(side):.2f}"


def find_labels(model: ServedModel, tokens: int, seed: int) -> Labels:
    """Two texts of `tokens` tokens that differ only in the last one."""
    writer = Writer(model, seed)
    while True:
        *shared, one, other = writer.document(tokens + 2).split()
        labels = " ".join([*shared, one]), " ".join([*shared, other])
        first, second = model.tokenizer.encode(list(labels))
        if len(first) == len(second) == tokens and first[:-1] == second[:-1] and first != second:
            return labels


def _filter(
    model: ServedModel, table: pa.Table, tokens: int, rounds: int, seed: int, say: Say
) -> Filtered:
    labels = _telling_labels(model, table.slice(0, 40), tokens, seed)
    _run_all(model, table.slice(0, 8), labels)
    rounds_run = [_run_all(model, table, labels) for _ in range(rounds)]
    runs = {side: tuple(each[side] for each in rounds_run) for side in SIDES}
    filtered = Filtered(tokens, labels, table.num_rows, runs)
    say(
        f"labels of {tokens}: "
        + ", ".join(f"{side} {filtered.seconds(side):.2f} s" for side in SIDES)
    )
    return filtered


def _telling_labels(model: ServedModel, table: pa.Table, tokens: int, seed: int) -> Labels:
    """Labels for which the rows have different answers, if such labels are found quickly. With
    random weights, most random labels give every row the same answer."""
    for number in range(TRIES):
        labels = find_labels(model, tokens, seed + number)
        run = alternate({SCORED: partial(_run, model, table, labels)})[SCORED]
        if 0 < len(run.numbers) < table.num_rows:
            break
    return labels


def _run_all(model: ServedModel, table: pa.Table, labels: Labels) -> dict[str, Run]:
    """Run the query on all sides in turn."""
    side = partial(_run, model, table, labels)
    within = {STEPS: _without_look_ahead, SKIPPED: _decoding}
    return alternate(dict.fromkeys(SIDES, side), within)


def _run(model: ServedModel, table: pa.Table, labels: Labels, turn: Turn) -> Run:
    result, seconds = run_query(model, {"movies": table}, QUERY.format(labels=labels), turn)
    numbers = tuple(sorted(row[0] for row in result.fetchall()))
    report = result.report
    return Run(seconds, numbers, report.prompt_tokens, report.cached_tokens, report.errors)


@contextmanager
def _decoding() -> Iterator[None]:
    """A context in which labels are decoded instead of scored."""
    with patch.object(labels, "SCORED_UNASKED", -1):
        yield


@contextmanager
def _without_look_ahead() -> Iterator[None]:
    """A context in which labels are decoded, including forced tokens."""
    with _decoding(), patch.object(core, "Loop", StepByStep):
        yield


_ABSENT = f"{FILE} is absent"


def _note(at: Filtered, side: str, other: str) -> str:
    return (
        f"{at.seconds(side):.2f} s ({side}) / {at.seconds(SCORED):.2f} s, medians of "
        f"{len(at.runs[SCORED])} runs each by turns, {at.spread(side)} and {at.spread(SCORED)}; "
        f"{other}: {at.gain(other):.2f}"
    )
