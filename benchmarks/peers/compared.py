"""Tasks that every side does, one after the other in one run: asked, asked again, in trouble."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.peers.environments import AS_JSON, DEFAULT, OURS, Side, sides
from benchmarks.peers.figures import HEAD, By, Tokens, figures, rows
from benchmarks.peers.provider import Row
from benchmarks.peers.run import measure
from benchmarks.peers.tasks import AGAIN, ASKED, FILE, GROWTH, TROUBLED, Task, read
from benchmarks.reorder.tokens import llama3
from benchmarks.templates import template

WORDS = template("peers")
FULL, QUICK = 2_000, 60
"""Rows."""
QUICKLY = 2
"""Tasks of each part in a quick run: the imports of the peers take most of its time."""
TOKENIZER = "tokenizers/llama3_tokenizer.model"


@dataclass(slots=True)
class Compared(Part):
    """found, tokens: by task, then side. compares_forms: whether ours is run in both forms."""

    compares_forms: ClassVar[bool] = False

    found: dict[str, By] = field(default_factory=dict)
    tokens: dict[str, Tokens] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """Those of this part."""

    def further(self) -> Iterator[Figure]:
        """Figures over several tasks, once all were done."""
        yield from ()

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        path = settings.data / FILE
        if not path.exists():
            yield Figure(
                f"{self.name}: requests over the better peer's", None, 1.0, note=f"without {FILE}"
            )
            return
        count = QUICK if settings.quick else FULL
        movies = read(path, count + count // GROWTH)
        competing = [
            side
            for side in sides(settings.peers or DEFAULT, say)
            if side.name != AS_JSON or self.compares_forms
        ]
        measure(competing[0], self.tasks[0], movies[:GROWTH])  # ours compiles its loops
        for task in self.tasks[:QUICKLY] if settings.quick else self.tasks:
            self._measure(task, competing, movies, settings, say)
            yield from figures(task, self.found[task.name], self.tokens.get(task.name))
        yield from self.further()

    def _measure(
        self,
        task: Task,
        competing: Sequence[Side],
        movies: Sequence[Row],
        settings: Settings,
        say: Say,
    ) -> None:
        by = {}
        for side in competing:
            by[side.name] = ran = measure(side, task, movies)
            say(f"{task.name}, {side.name}: {ran.requests:,} requests, {ran.seconds:.1f} s")
            if ran.error is not None:
                self.errors.append(f"{side.name} ended `{task.name}` with: `{ran.error}`")
        self.found[task.name] = by
        encode = llama3(settings.data / TOKENIZER)
        if encode is not None:
            self.tokens[task.name] = {
                name: sum(map(len, encode(list(measured.prompts)))) if measured.prompts else 0
                for name, measured in by.items()
            }

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if not self.found:
            return
        yield WORDS.block(self.name)
        yield from (f"- *{task.name}*: {task.says}." for task in self.tasks)
        yield ""
        yield from table(HEAD, rows(self.tasks, self.found, self.tokens))
        yield from (f"- {error}" for error in self.errors)


@dataclass(slots=True)
class Asked(Compared):
    """The part."""

    name = "asked"
    title = "Six questions"
    compares_forms = True

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return ASKED


@dataclass(slots=True)
class Again(Compared):
    """The part."""

    name = "again"
    title = "Asked again"

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return AGAIN


MAP = Task("no trouble", "map, to compare seconds with")


@dataclass(slots=True)
class Troubled(Compared):
    """The part. The first task is the same without trouble, to compare seconds with."""

    name = "trouble"
    title = "A provider in trouble"

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return (MAP, *TROUBLED)

    def further(self) -> Iterator[Figure]:
        """See Compared."""
        without, failing = self.found[MAP.name], self.found["bad calls"]
        ratio = {
            name: failing[name].seconds / measured.seconds for name, measured in without.items()
        }
        yield Figure(
            "seconds with failing calls over those without",
            ratio[OURS],
            1.3,
            at_least=False,
            note="; ".join(
                f"{name} {failing[name].seconds:.1f} s over {measured.seconds:.1f} s"
                for name, measured in without.items()
            ),
        )
