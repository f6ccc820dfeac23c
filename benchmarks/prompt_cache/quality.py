"""What reading modules by themselves costs in right answers (paper 001, Table 1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import sqrt
from random import Random
from statistics import fmean, pstdev

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prompt_cache.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.backends.base import Backend
from relquery.connection import connect
from relquery.prompt import Nest, Prompt, Reuse, Role, Sampling, Span
from relquery.sql.inputs.cells import JSON, Form
from relquery.sql.inputs.prompt import CallTemplate
from training.domains.rows import Kind
from training.domains.split import Split
from training.lessons.generator import Example, examples
from training.lessons.needles import AFTER, BEFORE, names_in, needle_texts

WORDS = template("prompt_cache")
TEXTS, HAY = 8, 8
"""Passages of a question, and the words around the name in each."""
ROOM = 0.02
"""Share of right answers that modules may cost."""
SURE = 1.96
"""Standard errors of a 95 percent interval."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question, asked as ordinary text and with modules, and its right answer."""

    plain: Prompt
    modules: Prompt
    answer: str


@dataclass(frozen=True, slots=True)
class Scored:
    """Right answers of one task: shares, and the difference with half of its interval."""

    task: str
    cases: int
    plain: float
    modules: float
    difference: float
    half: float


@dataclass(slots=True)
class Quality(Part):
    """The part."""

    name = "quality"
    title = "Right answers"
    sizes: Sizes = FULL
    found: list[Scored] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        with connect("demo", ledger=None) as connection:
            for task, make in TASKS.items():
                cases = list(islice(make(settings.seed), self.sizes.cases))
                self.found.append(scored := score(task, cases, connection.backend))
                say(str(scored))
                note = (
                    f"{scored.modules:.1%} / {scored.plain:.1%}, "
                    f"{scored.difference:+.1%} ± {scored.half:.1%}, {scored.cases:,} cases"
                )
                yield Figure(f"quality_{task}", scored.difference, -ROOM, note=note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield from table(
            ("task", "cases", "plain", "modules", "difference"),
            [
                (
                    each.task,
                    f"{each.cases:,}",
                    f"{each.plain:.1%}",
                    f"{each.modules:.1%}",
                    f"{100 * each.difference:+.1f} ± {100 * each.half:.1f} points",
                )
                for each in self.found
            ],
        )
        yield ""
        yield WORDS.block("quality", texts=TEXTS, hay=HAY)


def score(task: str, cases: Sequence[Case], backend: Backend) -> Scored:
    """Ask all cases both ways."""
    plain, modules = (
        _right(backend, prompts, cases)
        for prompts in ([case.plain for case in cases], [case.modules for case in cases])
    )
    differences = [b - a for a, b in zip(plain, modules, strict=True)]
    half = SURE * pstdev(differences) / sqrt(len(cases))
    return Scored(task, len(cases), fmean(plain), fmean(modules), fmean(differences), half)


def _right(backend: Backend, prompts: Sequence[Prompt], cases: Sequence[Case]) -> list[int]:
    """1 for each right answer, 0 for others."""
    answers = dict(backend.answer(prompts, Sampling(max_tokens=64)))
    return [int(answers[index].text == case.answer) for index, case in enumerate(cases)]


def _labels(seed: int) -> Iterator[Case]:
    """Filters and labels in turn."""
    kinds = [examples(seed, Split.HELD_OUT, kind) for kind in (Kind.FILTER, Kind.LABEL)]
    while True:
        for kind in kinds:
            yield _case(next(kind))


def _extraction(seed: int) -> Iterator[Case]:
    yield from map(_case, examples(seed, Split.HELD_OUT, Kind.COPY))


def _case(example: Example) -> Case:
    """A question over the fields of a row, as `LLM('...', field, ...)` sends it."""
    fields = example.prompt.fields
    forms: list[Form] = ["string" if isinstance(value, str) else "json" for _, value in fields]
    pieces = [
        [JSON.piece(JSON.label(name), form, _text(value))]
        for form, (name, value) in zip(forms, fields, strict=True)
    ]
    row = [0] * len(fields), list(range(len(fields)))
    plain, modules = (
        CallTemplate((example.prompt.query,), pieces, apart).prompt(*row) for apart in ((), row[1])
    )
    return Case(plain, modules, example.answer)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _passages(seed: int) -> Iterator[Case]:
    """Names in several texts, to be listed in order."""
    rng = Random(f"{seed} passages")
    while True:
        texts = needle_texts(rng, TEXTS, HAY)
        begin, end, line = Span(BEFORE), Span(AFTER), Span("\n")
        plain = (begin, Span("\n".join(texts)), end)
        apart: list[Span] = []
        for text in texts:
            apart += [line] if apart else []
            apart.append(Span(Nest((Span(text),)), Role.USER, Reuse.INDEPENDENT))
        names = ", ".join(names_in(" ".join(texts)))
        yield Case(plain, (begin, *apart, end), names)


TASKS = {"label": _labels, "extraction": _extraction, "passages": _passages}
