"""What was expected of a provider's cache beside what it reported, and the cause of each miss.

What was expected is known in tokens as relquery counts them. A provider's count differs by up to a
fifth, so it is scaled by the prompt's own tokens; and where a request has read nearly as much of
the same prefix, that is how long the prefix is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import inf

from relquery.ledger.records import ENTRIES, Filter, Records


class Cause(Enum):
    """Each with what it means, and the remedy."""

    CONCURRENT = (
        "concurrent first writes",
        "It was sent before any request with the same prefix was answered.",
        "Lower --concurrency, or ask more groups of rows in one query: first requests of other "
        "groups are then sent in between.",
    )
    EXPIRED = (
        "expired",
        "More time than an entry lives had passed since the last request with the same prefix.",
        "Raise --concurrency and --rpm as far as the provider allows. Give --rpm, so that entries "
        "of an hour are chosen where the provider has them and they cost less.",
    )
    EVICTED = (
        "evicted",
        "The prefix was written and had not expired, as far as the provider says how long it keeps "
        "one. It dropped it, or another of its machines served the request; it does not say which.",
        "Send less at once (--rpm), so that one machine serves a group of rows, and do not share "
        "the account with other programs meanwhile.",
    )
    UNWRITTEN = (
        "not written",
        "By its replies, the provider stored nothing for the requests with the same prefix that "
        "came before.",
        "Check that the server takes marks of prefixes; another server in between may drop them.",
    )
    FAILED = (
        "first request failed",
        "The request that was to write the prefix had no answer, and no other came before.",
        "Run the query again with the same ledger; see `relquery ledger --failed` for the error.",
    )
    MERGED = (
        "boundary merge",
        "It read all but the last step of the prefix: tokens at the border merge with what follows "
        "them, so the shared prefix is somewhat shorter than planned.",
        "None is needed. A line break at the end of the shared text avoids it.",
    )
    BELOW = (
        "below the minimum",
        "What it shares with other prompts is shorter than the shortest prefix that is cached.",
        "Share more: a longer instruction with examples, or text that several rows have, sent "
        "first. Or take a model with a lower minimum; see `relquery prices`.",
    )
    PINNED = (
        "order pinned",
        "It shares less than the minimum with its fields in this order, which was given. With "
        "another field first, it would share enough.",
        "Leave out --order original and fixed (order= in Python), and give fields as arguments in "
        "place of naming them in the prompt's text. If a guard pinned the order, answers depend on "
        "it.",
    )
    UNREPORTED = (
        "not reported",
        "The provider does not say how many tokens it read from its cache.",
        "Look at the provider's bill; the cost in the ledger counts nothing as cached.",
    )
    UNKNOWN = (
        "cannot be told",
        "The ledger does not have the times that would tell: the request that writes the prefix "
        "is not in it, or when one of the two was sent.",
        "Keep all processes of a query on one ledger.",
    )
    LITTLE = (
        "not marked",
        "Marks would have saved less than one percent of the call's input.",
        "None is needed.",
    )
    ALONE = (
        "only prompt",
        "Nothing was asked together with it that could share its prefix.",
        "Ask about more rows in one query.",
    )
    UNPRICED = (
        "no price known",
        "Without a price nothing is planned, since nobody knows what is cached.",
        "Give one: `relquery prices --update FILE`.",
    )
    BATCH = (
        "batch",
        "Requests of a batch run together, and nothing is expected to be read.",
        "None is needed: batches cost half.",
    )

    def __init__(self, title: str, meaning: str, remedy: str) -> None:
        self.title, self.meaning, self.remedy = title, meaning, remedy


UNEXPECTED = {
    "below": Cause.BELOW,
    "pinned": Cause.PINNED,
    "little": Cause.LITTLE,
    "alone": Cause.ALONE,
    "unpriced": Cause.UNPRICED,
    "batch": Cause.BATCH,
}
"""Why nothing was expected of a prompt, by what the ledger says."""


_COLUMNS = (
    "e.key, x.run, x.model, e.plan, e.place, e.writer, e.prefix, e.why, e.tokens, e.shared, "
    "e.counted, e.sent, x.at, e.told, x.prompt_tokens, x.cached_tokens, x.written_tokens, "
    "p.minimum, p.step, p.marked, p.lifetime, p.uncached, p.write, p.read"
)
# Of a call that failed and was answered later, the answer; of several failures, the last.
_LAST = f"""
    SELECT * FROM (SELECT *, row_number() OVER (
        PARTITION BY key ORDER BY failure IS NULL DESC, at DESC) AS nth FROM ({ENTRIES}))
    WHERE nth = 1"""
_SELECT = f"""
    SELECT {_COLUMNS}, {{}} FROM expected e JOIN ({_LAST}) x ON x.key = e.key
    LEFT JOIN plans p ON p.plan = e.plan ORDER BY x.run, x.model, x.at, e.key"""
_UNPLANNED = f"""
    SELECT run, model, count(*) FROM ({_LAST}) x
    WHERE key NOT IN (SELECT key FROM expected) AND {{}} GROUP BY run, model"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer, or a failure, with what was expected of it.

    Those from `plan` to `counted` are the fields of Expected; sent, came: seconds since 1970, sent
    is None where it is not known. told: whether the provider says what was cached. prompt, cached,
    written: tokens as it counts them. The rest are the fields of Plan. wanted: whether it is asked
    about; others are read to tell what wrote and used an entry of the cache.
    """

    key: bytes
    run: int | None
    model: str
    plan: bytes
    place: int
    writer: int | None
    prefix: bytes | None
    why: str
    tokens: int
    shared: int
    counted: int
    sent: float | None
    came: float
    told: bool
    prompt: int
    cached: int
    written: int
    minimum: int | None
    step: int | None
    marked: bool | None
    lifetime: float | None
    uncached: float | None
    write: float | None
    read: float | None
    wanted: bool

    @property
    def scale(self) -> float:
        """The provider's tokens per token as relquery counts them."""
        return self.prompt / self.counted if self.counted else 1.0

    @property
    def is_answered(self) -> bool:
        """Whether the provider has computed something for it."""
        return self.prompt > 0


def entries_of(records: Records, wanted: Filter) -> list[Entry]:
    """Those with an expectation, by run and model, in the order in which they came."""
    condition, values = wanted.condition()
    rows = records.connection.execute(_SELECT.format(condition), values)
    return [Entry(*row) for row in rows]


def unplanned(records: Records, wanted: Filter) -> dict[tuple[int | None, str | None], int]:
    """How many answers and failures have no expectation, by run and model."""
    condition, values = wanted.condition()
    rows = records.connection.execute(_UNPLANNED.format(condition), values)
    return {(run, model): count for run, model, count in rows}


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
