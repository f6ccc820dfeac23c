"""Findings counted by run and model, and by cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relquery.ledger.diagnosis import Cause, Diagnosis, Finding, entries_of, unplanned
from relquery.ledger.records import Filter, opened


@dataclass(slots=True)
class Missed:
    """Answers with one cause. tokens: that were not read. usd: what that cost; None if unknown."""

    answers: int = 0
    tokens: int = 0
    usd: float | None = None

    def add(self, finding: Finding) -> None:
        """Count one."""
        self.answers += 1
        self.tokens += finding.missed
        if finding.usd is not None:
            self.usd = (self.usd or 0.0) + finding.usd


@dataclass(slots=True)
class CacheUse:
    """What a run asked a model; run: None for what no run is known of.

    answers: with an expectation. unplanned: those without one. expected, reported: tokens that were
    to be read from the provider's cache, and that it says it read. readers: answers that were to
    read something, of which `hits` did. missed: expected tokens that were not read. usd: what that
    cost, as far as it is known.
    """

    run: int | None
    model: str | None
    answers: int = 0
    unplanned: int = 0
    readers: int = 0
    hits: int = 0
    expected: int = 0
    reported: int = 0
    missed: int = 0
    usd: float | None = None
    causes: dict[Cause, Missed] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count one."""
        self.answers += 1
        self.expected += finding.expected
        self.reported += finding.entry.cached
        if finding.expected:
            self.readers += 1
            self.hits += finding.cause is None
            if finding.cause not in (None, Cause.UNREPORTED):
                self.missed += finding.missed
                if finding.usd is not None:
                    self.usd = (self.usd or 0.0) + finding.usd
        if finding.cause is not None:
            self.causes.setdefault(finding.cause, Missed()).add(finding)


def examine(path: Path, wanted: Filter) -> tuple[list[Finding], list[CacheUse]]:
    """What is found of the answers in a ledger, one by one and by run and model.

    Raises ConfigError for what is not a ledger, and a model that it does not have.
    """
    with opened(path) as records:
        records.check_model(wanted)
        entries = entries_of(records, wanted)
        others = unplanned(records, wanted)
    asked = [each for each in entries if each.wanted]
    findings = Diagnosis.of(entries).findings(asked)
    return findings, _grouped(findings, others)


_Groups = dict[tuple[int | None, str | None], CacheUse]


def _at(groups: _Groups, run: int | None, model: str | None) -> CacheUse:
    return groups.setdefault((run, model), CacheUse(run, model))


def _grouped(
    findings: Iterable[Finding], others: Mapping[tuple[int | None, str | None], int]
) -> list[CacheUse]:
    groups: _Groups = {}
    for each in findings:
        _at(groups, each.entry.run, each.entry.model).add(each)
    for (run, model), count in others.items():
        _at(groups, run, model).unplanned = count
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0] or 0, key[1] or ""))]
