"""`scripts/bench redact`: precision and recall of the rules for personal data, by kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import astuple, dataclass, field
from operator import attrgetter

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, in_parts
from benchmarks.redact.sentences import LANGUAGES, Sentence, by_hand, drawn
from benchmarks.templates import template
from relquery.pii.patterns import KINDS, Finding
from relquery.pii.placeholders import find

SENTENCES = 500
WORDS = template("redact")
_GOALS = {"NAME": 0.8, "ADDRESS": 0.8}
"""Of recall and precision, for kinds without a form; 0.95 for the others."""
_BY_HAND, _LISTED, _OTHER = "by hand", "drawn, listed names", "drawn, other names"
_HIDDEN_OF = attrgetter("hidden"), attrgetter("labelled")


@dataclass(slots=True)
class Counts:
    """What was labelled and found of a kind. hidden: labelled, and found as any kind."""

    labelled: int = 0
    recalled: int = 0
    hidden: int = 0
    found: int = 0
    right: int = 0

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Counts(*(count + another for count, another in pairs))

    @property
    def recall(self) -> float | None:
        """The share of labelled texts that were found whole, as their kind."""
        return self.recalled / self.labelled if self.labelled else None

    @property
    def precision(self) -> float | None:
        """The share of what was found that touches a labelled text of the kind."""
        return self.right / self.found if self.found else None


def covers(found: Iterable[Finding], one: Finding) -> bool:
    """Whether all characters of a text are in what was found."""
    places = {index for other in found for index in range(other.start, other.end)}
    return places.issuperset(range(one.start, one.end))


def counted(sentence: Sentence, counts: dict[str, Counts]) -> None:
    """Add what the rules find in a sentence, by kind."""
    findings = find(sentence.text)
    for finding in sentence.labels:
        of_kind = counts.setdefault(finding.kind, Counts())
        of_kind.labelled += 1
        of_kind.recalled += covers(
            [other for other in findings if other.kind == finding.kind], finding
        )
        of_kind.hidden += covers(findings, finding)
    for finding in findings:
        of_kind = counts.setdefault(finding.kind, Counts())
        of_kind.found += 1
        of_kind.right += any(
            label.kind == finding.kind and label.start < finding.end and finding.start < label.end
            for label in sentence.labels
        )


@dataclass(slots=True)
class Rules(Part):
    """What the rules find in sentences that they were not written for."""

    name = "rules"
    title = "Rules"

    counts: dict[tuple[str, str], dict[str, Counts]] = field(default_factory=dict)
    """By language and source of the sentences, and by kind."""
    sources: Counter[str] = field(default_factory=Counter)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part. The small size is that of all."""
        written = by_hand()
        sentences = [*written, *drawn(SENTENCES - len(written), settings.seed)]
        for sentence in drawn(100, settings.seed, "tuned"):  # has `re` compile the patterns
            find(sentence.text)
        start = time.process_time()
        for sentence in sentences:
            source = _LISTED if sentence.listed else _OTHER
            source = _BY_HAND if sentence.written else source
            self.sources[source] += 1
            counted(sentence, self.counts.setdefault((sentence.language, source), {}))
        each = (time.process_time() - start) / len(sentences) * 1e6
        say(f"{len(sentences)} sentences, {each:.0f} us each")
        for kind in KINDS:
            total, goal = self._total(kind), _GOALS.get(kind, 0.95)
            note = f"{total.recalled} of {total.labelled}; by hand {self._shown(kind, _BY_HAND)}"
            yield Figure(f"{kind.lower()}_recall", total.recall, goal, note=note, any_size=True)
            name, note = f"{kind.lower()}_precision", f"{total.right} of {total.found}"
            yield Figure(name, total.precision, goal, note=note, any_size=True)
        totals = [self._total(kind) for kind in KINDS]
        hidden, labelled = (sum(map(get, totals)) for get in _HIDDEN_OF)
        yield Figure("hidden", hidden / labelled, None, note="found as any kind, of all labelled")
        clean = [sentence for sentence in sentences if not sentence.labels]
        wrong = sum(bool(find(sentence.text)) for sentence in clean)
        note = f"{wrong} of {len(clean)} sentences without personal data"
        yield Figure("false_alarms", wrong / len(clean), None, note=note)
        yield Figure("microseconds", each, None, note="of one core, per sentence")

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        sources = (_BY_HAND, _LISTED, _OTHER)
        hand, listed, other = (self.sources[source] for source in sources)
        yield from WORDS.block("rules", hand=hand, listed=listed, other=other).splitlines()
        yield ""
        yield from table(
            ("names", *LANGUAGES),
            [
                (source, *(self._shown("NAME", source, language) for language in LANGUAGES))
                for source in sources
            ],
        )

    def _total(self, kind: str, source: str = "", language: str = "") -> Counts:
        """Of one source and language, or of all."""
        parts = (
            counts[kind]
            for (of, source_of), counts in self.counts.items()
            if kind in counts and source in ("", source_of) and language in ("", of)
        )
        return sum(parts, Counts())

    def _shown(self, kind: str, source: str, language: str = "") -> str:
        total = self._total(kind, source, language)
        return f"{total.recalled} of {total.labelled}"


BENCHMARK = in_parts(
    "redact",
    "precision and recall of the rules for personal data, by kind",
    (Rules,),
    file="redact.md",
    introduction=WORDS.block("introduction"),
)
