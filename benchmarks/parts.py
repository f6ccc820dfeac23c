"""A benchmark in parts: each can run separately, and has its own section in the document.

A part that needs hours on a virtual clock and one that needs a quiet machine are run at different
times. Each section says when and how it was measured. A run rewrites the sections of its parts and
leaves the others unchanged.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import lead
from benchmarks.harness import Benchmark, Figure, Say, Settings, document, too_small
from benchmarks.markdown import draw, figures, measured

Plot = Callable[[Path], None]


class Part(ABC):
    """A part of a benchmark, and what it found.

    name: its name on the command line. title: the title of its section.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    lists_reported: ClassVar[bool] = True
    """Whether its figures without a goal are listed; a part may show them in tables of its own."""

    @abstractmethod
    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """Measure, keep what the section shows, and yield the figures."""

    @abstractmethod
    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """The section's text below the figures, as Markdown lines. drawn: the pictures drawn."""

    def pictures(self) -> Mapping[str, Plot]:
        """Its pictures, by the names of their files."""
        return {}


def in_parts(
    name: str,
    purpose: str,
    parts: Sequence[type[Part]],
    *,
    file: str,
    introduction: str,
    scales: bool = False,
) -> Benchmark:
    """A benchmark that runs its parts one after another, or those of Settings.parts.

    file: the name of its document. introduction: the text above all sections. A section is written
    when its part has ended, so it remains if the run is stopped later.
    """
    names = tuple(part.name for part in parts)

    def run(settings: Settings, say: Say) -> Iterator[Figure]:
        for make in parts:
            if settings.parts and make.name not in settings.parts:
                continue
            part, figures_of = make(), list[Figure]()
            for figure in part.measure(settings, say):
                figures_of.append(too_small(figure) if settings.quick else figure)
                yield figures_of[-1]
            if settings.write is not None:
                run_as = document(benchmark, settings, figures_of)
                section = _section(part, run_as, settings.seed, settings.write, say)
                path = settings.write / file
                old = path.read_text(encoding="utf-8") if path.exists() else ""
                new = replace_section(old, part.name, section, names)
                text = f"# `scripts/bench {name}`\n\n{introduction}\n{new}"
                path.write_text(text, encoding="utf-8")
                say(f"wrote {path}")
                lead.write(path, say)

    benchmark = Benchmark(name, purpose, run, scales, names)
    return benchmark


def _section(part: Part, run: dict[str, Any], seed: int, folder: Path, say: Say) -> str:
    """The section of a part, with its pictures drawn. run: see harness.document."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name for name, plot in part.pictures().items() if draw(plot, folder / name, say)}
    listed = {
        name: figure
        for name, figure in run["figures"].items()
        if part.lists_reported or figure["goal"] != "-"
    }
    shown = figures(run | {"figures": listed})
    lines = [f"## {part.title}", "", *measured(run, seed), *shown, *part.render(drawn)]
    return "\n".join(lines)


_MARK = re.compile(r"^<!-- part: (\S+) -->\n", re.MULTILINE)


def replace_section(old: str, name: str, section: str, names: Sequence[str]) -> str:
    """The sections of a document, in the order of `names`, with this one replacing the old one.

    Sections that are not in `names` are left out, and so is the text above the first.
    """
    _, *rest = _MARK.split(old)
    sections = {**dict(zip(rest[::2], rest[1::2], strict=True)), name: section}
    marked = (
        f"<!-- part: {each} -->\n{sections[each].rstrip()}\n" for each in names if each in sections
    )
    return "\n".join(marked)
