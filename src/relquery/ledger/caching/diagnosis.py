"""Compares what was expected with what a provider reported, and finds the cause of each miss.

What was expected is known in tokens as relquery counts them. A provider's count differs by up to a
fifth, so it is scaled by the prompt's own tokens; and where a request has read nearly as much of
the same prefix, that is how long the prefix is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
"""A model, and the hash of what prompts begin with."""


@dataclass(frozen=True, slots=True)
class History:
    """The answers to prompts with one prefix.

    came: when each came, ascending. kept: the most that it and those before it have read, infinite
    once one has written. reads: what those have read that were to read this prefix, ascending.
    """

    came: Sequence[float]
    kept: Sequence[float]
    reads: Sequence[int]

    @classmethod
    def of(cls, readers: Sequence[Entry], writers: Iterable[Entry]) -> History:
        """writers: of this prefix, which may themselves be readers of it, or of a shorter one."""
        known = {each.key: each for each in (*readers, *writers)}
        some = sorted(known.values(), key=lambda one: one.came)
        kept = accumulate((inf if one.written else float(one.cached) for one in some), max)
        return cls([one.came for one in some], list(kept), sorted(one.cached for one in readers))

    def nearest(self, tokens: float) -> int | None:
        """The most that was read of what is nearly so many tokens; None if nothing was."""
        at = bisect_right(self.reads, (1 + _NEAR) * tokens) - 1
        return self.reads[at] if at >= 0 and self.reads[at] >= (1 - _NEAR) * tokens else None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Made from all entries of a ledger: requests of one run may read what another wrote.

    at: the entry at each place of a plan.
    """

    at: Mapping[tuple[bytes, int], Entry]
    histories: Mapping[Prefix, History]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Diagnosis:
        """Of all entries; where a prompt was asked more than once, the last one counts."""
        places = {(each.plan, each.place): each for each in sorted(entries, key=_came)}
        readers: dict[Prefix, list[Entry]] = defaultdict(list)
        writers: dict[Prefix, list[Entry]] = defaultdict(list)
        for each in places.values():
            if each.prefix is None:
                continue
            prefix = each.model, each.prefix
            if each.is_answered:
                readers[prefix].append(each)
            # What writes a prefix may read a shorter one, under whose name it stands.
            writer = None if each.writer is None else places.get((each.plan, each.writer))
            if writer is not None and writer.is_answered:
                writers[prefix].append(writer)
        known = readers.keys() | writers.keys()
        return cls(places, {one: History.of(readers[one], writers[one]) for one in known})

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
        near = self._history(entry).nearest(scaled)
        # In an automatic cache, prompts may share somewhat more than planned, or lose a step.
        if near is not None and (entry.marked or scaled - near > (entry.step or 1)):
            return near
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
        if entry.sent is None:
            return Cause.UNKNOWN
        history = self._history(entry)
        before = bisect_left(history.came, entry.sent)
        if not before:
            return self._without_earlier(entry, history)
        last = before - 1
        if entry.marked and history.kept[last] < (1 - _NEAR) * expected:
            return Cause.UNWRITTEN
        lifetime = inf if entry.lifetime is None else entry.lifetime
        return Cause.EXPIRED if entry.sent - history.came[last] > lifetime else Cause.EVICTED

    def _without_earlier(self, entry: Entry, history: History) -> Cause:
        """Why no request with the same prefix was answered before."""
        writer = None if entry.writer is None else self.at.get((entry.plan, entry.writer))
        if writer is not None and not writer.is_answered:
            return Cause.FAILED
        others = len(history.came) > 1  # than this one
        return Cause.CONCURRENT if writer is not None or others else Cause.UNKNOWN

    def _history(self, entry: Entry) -> History:
        assert entry.prefix is not None
        return self.histories[entry.model, entry.prefix]


def _came(entry: Entry) -> float:
    return entry.came


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
