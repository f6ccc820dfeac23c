"""A STRUCT of five fields, answered in about the time of free text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.network import train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.demo.files import table_path
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling, Span
from relquery.sql.inputs.prompt import SYSTEM

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

GENRES = ("drama", "comedy", "documentary", "horror")
PROPERTIES: Mapping[str, Any] = {
    "title": {"type": "string", "maxLength": 24},
    "year": {"type": "integer", "minimum": 1900, "maximum": 2099},
    "genre": {"type": "string", "enum": list(GENRES)},
    "recommended": {"type": "boolean"},
    "stars": {"type": "integer", "minimum": 1, "maximum": 5},
}
SCHEMA = json.dumps({"type": "object", "properties": PROPERTIES})
QUESTION = "Extract the title, the year, the genre, whether it is recommended, and the stars."
MOST = 200
"""Tokens of an answer at most: more than a valid one can have."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of each round by side, and the answers under the schema. first: seconds of the first
    run under the schema, in which the grammar is compiled."""

    constrained: tuple[float, ...]
    free: tuple[float, ...]
    first: float
    answers: tuple[Answer, ...]

    @property
    def over_free(self) -> float:
        """Seconds under the schema over those of free text, as medians."""
        return median(self.constrained) / median(self.free)

    @property
    def valid(self) -> float:
        """Share of the answers that are valid."""
        return sum(map(is_valid, self.answers)) / len(self.answers)


def measure(model: ServedModel, rows: Sequence[Mapping[str, Any]], rounds: int) -> Measured:
    """Ask of each row, in turns, after one round to warm up."""
    from relquery.config import EngineConfig

    backend = EmbeddedBackend(model, EngineConfig(prefix_caching=False))
    backend.reserve()
    prompts = [prompt(row) for row in rows]
    first, answers = _constrained(backend, prompts)
    lengths = [answer.output_tokens for answer in answers]
    _free(backend, prompts, lengths)
    constrained, free = [], []
    for _ in range(rounds):
        constrained.append(_constrained(backend, prompts)[0])
        free.append(_free(backend, prompts, lengths))
    backend.close()
    return Measured(tuple(constrained), tuple(free), first, tuple(answers))


def prompt(row: Mapping[str, Any]) -> Prompt:
    """As a call of SQL asks."""
    fields = json.dumps(row, default=str, indent=0)
    text = f"Answer the below query:\n{QUESTION}\n\nGiven the following data:\n{fields}"
    return Span(SYSTEM, Role.SYSTEM), Span(text)


def is_valid(answer: Answer) -> bool:
    """Whether an answer has all fields of the schema, in order, each with a value of its type."""
    if answer.finish is not Finish.STOP:
        return False
    try:
        value = json.loads(answer.text or "")
    except ValueError:
        return False
    if not isinstance(value, dict) or list(value) != list(PROPERTIES):
        return False
    title, year, genre, recommended, stars = value.values()
    return (
        isinstance(title, str)
        and len(title) <= PROPERTIES["title"]["maxLength"]
        and type(year) is int
        and 1900 <= year <= 2099
        and genre in GENRES
        and isinstance(recommended, bool)
        and type(stars) is int
        and 1 <= stars <= 5
    )


def _constrained(backend: EmbeddedBackend, prompts: Sequence[Prompt]) -> tuple[float, list[Answer]]:
    begin = perf_counter()
    answers = dict(backend.answer(prompts, Sampling(max_tokens=MOST, schema=SCHEMA)))
    return perf_counter() - begin, [answers[index] for index in range(len(prompts))]


def _free(backend: EmbeddedBackend, prompts: Sequence[Prompt], lengths: Sequence[int]) -> float:
    """Seconds of answers of these lengths; like the others, all are there before the first step."""
    begin = perf_counter()
    asked = [
        backend.answer([each], Sampling(max_tokens=length))
        for each, length in zip(prompts, lengths, strict=True)
    ]
    answers = [answer for answers in asked for _, answer in answers]
    seconds = perf_counter() - begin
    if [answer.output_tokens for answer in answers] != list(lengths):
        raise AssertionError("free text is not as long as the answers under the schema")
    return seconds


WORDS = template("queries")

GOAL = 1.1


@dataclass(slots=True)
class Constrained(Part):
    """The part."""

    name = "constrained"
    title = "Answers that are a STRUCT"
    sizes: Sizes = FULL
    found: list[Measured] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import native, set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        rows = pq.read_table(table_path("movies")).slice(0, self.sizes.structs).to_pylist()
        model = train(self.sizes.model, rows, [QUESTION, SCHEMA], self.sizes.vocabulary)
        # A random network draws its end token anywhere; a grammar ends where nothing can follow.
        measured = measure(replace(native(model), end=frozenset()), rows, self.sizes.rounds)
        self.found.append(measured)
        say(f"{measured.constrained} s, free text {measured.free} s")
        yield from figures(measured)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for measured in self.found:
            yield WORDS.block(
                "constrained",
                rows=len(measured.answers),
                rounds=len(measured.free),
                schema=SCHEMA,
                model=self.sizes.model,
                first=measured.first,
            )
            yield from table(
                ("side", "seconds of each round"),
                [
                    (side, " ".join(f"{each:.2f}" for each in seconds))
                    for side, seconds in (
                        ("STRUCT", measured.constrained),
                        ("free text", measured.free),
                    )
                ],
            )


def figures(at: Measured) -> Iterator[Figure]:
    """The time beside that of free text, and how many answers are valid."""
    tokens = sum(answer.output_tokens for answer in at.answers)
    note = f"medians of {len(at.free)}; {tokens:,} tokens of {len(at.answers)} answers"
    yield Figure("constrained_over_free", at.over_free, GOAL, at_least=False, note=note)
    note = f"of {len(at.answers)} answers"
    yield Figure("constrained_valid", at.valid, 1.0, note=note, any_size=True)
