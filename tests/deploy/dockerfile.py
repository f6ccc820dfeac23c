"""Reads deploy/Dockerfile as far as tests need it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class Step(NamedTuple):
    """An instruction: its word, and what follows."""

    word: str
    text: str

    @property
    def words(self) -> list[str]:
        """Its words: those of a JSON list, or as a shell reads them."""
        listed: list[str] = json.loads(self.text) if self.text.startswith("[") else []
        return listed or shlex.split(self.text)


@dataclass
class Stage:
    """A stage. base: an image, or the stage that it goes on from."""

    base: str
    steps: list[Step] = field(default_factory=list)

    def all(self, word: str) -> list[Step]:
        return [step for step in self.steps if step.word == word]

    def one(self, word: str) -> Step:
        (found,) = self.all(word)
        return found

    @property
    def healthcheck(self) -> list[str]:
        return Step("CMD", self.one("HEALTHCHECK").text.partition("CMD ")[2]).words


def read() -> dict[str, Stage]:
    """The stages by name, in the order of the file."""
    stages: dict[str, Stage] = {}
    for word, text in _instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8")):
        if word == "FROM":
            base, _, name = text.split()
            stages[name] = Stage(base)
        elif stages:
            list(stages.values())[-1].steps.append(Step(word, text))
        else:
            assert word == "ARG"
    return stages


def with_bases(stages: dict[str, Stage], name: str) -> list[Step]:
    """The steps of a stage after those of the stages that it goes on from."""
    stage = stages[name]
    before = with_bases(stages, stage.base) if stage.base in stages else []
    return before + stage.steps


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest.strip()
