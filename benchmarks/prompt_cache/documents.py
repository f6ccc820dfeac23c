"""Questions over ten passages each, with the passages as modules (paper 001, section 5.2)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prompt_cache.first_token import Case, measure_cases
from benchmarks.prompt_cache.sizes import FULL, QUERIES, Sizes, choose
from benchmarks.spans.setup import load_model
from benchmarks.templates import template
from relquery.markup.schema import Schema

WORDS = template("prompt_cache")
FILE = "longctx/musique_s.json"
SIDES = ("plain", "hit")
GOAL = 9.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Medians over the questions of one model. tokens: of a prompt. plain, hit: seconds. gain: of
    a question's plain prompt over its modules."""

    tokens: float
    plain: float
    hit: float
    gain: float


@dataclass(slots=True)
class Documents(Part):
    """The part."""

    name = "documents"
    title = "Questions over passages"
    sizes: Sizes = FULL
    found: dict[str, Asked] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part. Nothing without the file."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        if not (settings.data / FILE).exists():
            say(f"{settings.data / FILE} is not there; this part is left out.")
            return
        schemas, cases = read(settings.data / FILE, self.sizes.questions)
        for name, spec in self.sizes.models:
            model = load_model(spec, QUERIES, settings.data)
            timed = list(measure_cases(model, schemas, cases, SIDES))[1:]  # the first warms up
            self.found[name] = asked = Asked(
                median(each.tokens for each in timed),
                median(each.seconds["plain"] for each in timed),
                median(each.seconds["hit"] for each in timed),
                median(each.gain("hit") for each in timed),
            )
            say(f"{spec}: {asked}")
            note = f"{asked.plain:.3f} / {asked.hit:.4f} s, {len(timed)} questions"
            yield Figure(f"documents_{name}", asked.gain, GOAL, note=note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield from table(
            ("model", "tokens", "plain, ms", "hit, ms", "plain / hit"),
            [
                (
                    name,
                    f"{each.tokens:,.0f}",
                    f"{1e3 * each.plain:.1f}",
                    f"{1e3 * each.hit:.1f}",
                    f"{each.gain:.1f}",
                )
                for name, each in self.found.items()
            ],
        )
        yield ""
        yield WORDS.block("documents", questions=self.sizes.questions)


def read(path: Path, count: int) -> tuple[list[Schema], list[Case]]:
    """A schema with the passages of each question as modules, and the questions; one more than
    `count`."""
    rows = json.loads(path.read_text(encoding="utf-8"))[: count + 1]
    schemas, cases = [], []
    for number, row in enumerate(rows):
        texts = [escape(f"{each['title']}\n{each['text']}".strip()) for each in row["ctxs"]]
        modules = {f"p{place}": text for place, text in enumerate(texts)}
        inside = "".join(
            f"<module name='{name}'>{text}\n</module>" for name, text in modules.items()
        )
        schemas.append(Schema.parse(f"<schema name='q{number}'>{inside}</schema>"))
        added = f"Question: {row['question']}\nAnswer:"
        cases.append(Case(f"q{number}", tuple(modules), added))
    return schemas, cases
