"""Compares what was expected with what a provider reported, and finds the cause of each miss.

What was expected is known in tokens as relquery counts them. A provider's count differs by up to a
fifth, so it is scaled by the prompt's own tokens; and where a request has read nearly as much of
the same prefix, that is how long the prefix is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from relquery.ledger.caching.causes import UNEXPECTED, Cause
from relquery.ledger.caching.entries import Entry

_NEAR = 0.25
"""A reading within so much of the scaled length is one of the whole prefix."""
_EXACT = 0.1
"""So much less than expected is not a miss: it is within the error of the count."""
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer: tokens of the provider that it was expected to read, and how many it missed.

    cause: None for a hit, for the first with its prefix, and for what has no answer. missed: for
    prompts of which nothing was expected, what they share with others in vain. usd: what the
    missed tokens cost more than if they had been read; None where prices are not known.
    """

    entry: Entry
    expected: int = 0
    missed: int = 0
    cause: Cause | None = None
    usd: float | None = None


Prefix = tuple[str, bytes]


@dataclass(slots=True)
class Diagnosis:
    """Made from all entries of a ledger: requests of one run may read what another wrote."""

    _of_prefix: dict[Prefix, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _of_place: dict[tuple[bytes, int], Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Diagnosis:
        """Of these; they must be in the order in which they came."""
        found = cls()
        for each in sorted(entries, key=lambda one: one.came):
            found._of_place[each.plan, each.place] = each
        for each in found._of_place.values():
            if each.prefix is None or not each.is_answered:
                continue
            found._of_prefix[each.model, each.prefix].append(each)
        found._add_writers()
        return found

    def _add_writers(self) -> None:
        """What writes a prefix may itself read a shorter one, under whose name it stands."""
        more: dict[Prefix, dict[bytes, Entry]] = defaultdict(dict)
        for each in self._of_place.values():
            writer = self._writer(each)
            if each.prefix is not None and writer is not None and writer.is_answered:
                more[each.model, each.prefix][writer.key] = writer
        for prefix, writers in more.items():
            known = self._of_prefix[prefix]
            keys = {one.key for one in known}
            known += [one for key, one in writers.items() if key not in keys]
            known.sort(key=lambda one: one.came)

    def findings(self, entries: Iterable[Entry]) -> list[Finding]:
        """One for each entry."""
        return [self._finding(each) for each in entries]

    def _finding(self, entry: Entry) -> Finding:
        if not entry.is_answered or entry.why == "writes":
            return Finding(entry)
        if (cause := UNEXPECTED.get(entry.why)) is not None:
            short = cause in (Cause.BELOW, Cause.PINNED)
            missed = round(entry.shared * entry.scale) if short else 0
            missed = max(0, missed - entry.cached)
            return Finding(entry, 0, missed, cause, _usd(entry, missed))
        expected = self._size(entry)
        if not entry.told:
            return Finding(entry, expected, expected, Cause.UNREPORTED)
        missed = expected - entry.cached
        cause = self._cause(entry, expected, missed)
        if cause is None:
            return Finding(entry, expected)
        return Finding(entry, expected, missed, cause, _usd(entry, missed))

    def _size(self, entry: Entry) -> int:
        """Tokens of the prefix that it was to read, as the provider counts and serves them."""
        scaled = _served(entry, entry.tokens * entry.scale)
        assert entry.prefix is not None
        same = self._of_prefix[entry.model, entry.prefix]
        near = [
            each.cached
            for each in same
            if each.prefix == entry.prefix and abs(each.cached - scaled) <= _NEAR * scaled
        ]
        # In an automatic cache, prompts may share somewhat more than planned, or lose a step.
        if near and (entry.marked or scaled - max(near) > (entry.step or 1)):
            return max(near)
        return scaled

    def _cause(self, entry: Entry, expected: int, missed: int) -> Cause | None:
        step = entry.step or 1
        if missed <= 0:
            return None
        if entry.cached and not entry.marked and missed <= step:
            return Cause.MERGED
        if entry.cached and missed <= _EXACT * expected:
            return None
        if not entry.cached and entry.minimum is not None and expected < entry.minimum:
            return Cause.BELOW
        return self._of_times(entry, expected)

    def _of_times(self, entry: Entry, expected: int) -> Cause:
        """What the times of the requests with the same prefix tell."""
        assert entry.prefix is not None
        writer = self._writer(entry)
        others = [
            each for each in self._of_prefix[entry.model, entry.prefix] if each.key != entry.key
        ]
        if entry.sent is None:
            return Cause.UNKNOWN
        before = others[: bisect_left([each.came for each in others], entry.sent)]
        if not before:
            if writer is not None and not writer.is_answered:
                return Cause.FAILED
            known = writer is not None or bool(others)
            return Cause.CONCURRENT if known else Cause.UNKNOWN
        whole = (1 - _NEAR) * expected
        if entry.marked and not any(each.written or each.cached >= whole for each in before):
            return Cause.UNWRITTEN
        lifetime = inf if entry.lifetime is None else entry.lifetime
        if entry.sent - before[-1].came > lifetime:
            return Cause.EXPIRED
        return Cause.EVICTED

    def _writer(self, entry: Entry) -> Entry | None:
        return None if entry.writer is None else self._of_place.get((entry.plan, entry.writer))


def _served(entry: Entry, tokens: float) -> int:
    """What is served of a prefix: of an automatic cache, whole steps above the minimum."""
    if entry.marked or not entry.step or entry.minimum is None or tokens < entry.minimum:
        return round(tokens)
    return entry.minimum + int((tokens - entry.minimum) // entry.step) * entry.step


def _usd(entry: Entry, missed: int) -> float | None:
    """What tokens that were not read cost more: they were sent, or written once more."""
    paid = entry.write if entry.written else entry.uncached
    if paid is None or entry.read is None:
        return None
    return missed * (paid - entry.read) / _MILLION
