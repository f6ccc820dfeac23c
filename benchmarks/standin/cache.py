"""The two kinds of prompt caches: of marked prefixes, and automatic ones.

An entry can be read once the response to the request that writes it has begun. So a request is
looked up when it arrives (`look_up`), and what it writes is there when its response begins
(`Reading.begin`): of requests that arrive together, all write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from benchmarks.standin.prompt import Block, Counter, Sent, chained
from benchmarks.standin.rules import HOUR, Rules


@dataclass(frozen=True, slots=True)
class Reading:
    """How the input tokens of a request are billed; they add up to `total`."""

    uncached: int
    read: int
    written: int
    written_hour: int
    begin: Callable[[float], None]
    """To be called with the time at which the response begins."""

    @property
    def total(self) -> int:
        return self.uncached + self.read + self.written + self.written_hour


@dataclass(slots=True)
class Entries:
    """Prefixes by key: until when they live and for how long, the least recently used first.

    capacity: the most tokens that are kept; each entry counts with `size`.
    """

    capacity: float = inf
    held: float = 0.0
    _of: OrderedDict[object, tuple[float, float, int]] = field(default_factory=OrderedDict)

    def has(self, key: object, now: float) -> bool:
        """Whether an entry is there and has not expired."""
        expiry = self._of.get(key)
        return expiry is not None and now <= expiry[0]

    def use(self, key: object, now: float) -> None:
        """Live on from now."""
        expiry = self._of.pop(key, None)
        if expiry is not None:
            self._of[key] = (now + expiry[1], *expiry[1:])

    def put(self, key: object, now: float, lives: float, size: int) -> None:
        """Write an entry; others go if there is no room."""
        before = self._of.pop(key, None)
        self.held += size - (before[2] if before else 0)
        self._of[key] = (now + lives, lives, size)
        while self.held > self.capacity and self._of:
            self.held -= self._of.popitem(last=False)[1][2]


class Cache(ABC):
    """The cache of one model for one customer. capacity: the most tokens that it holds."""

    def __init__(self, rules: Rules, counter: Counter, capacity: float = inf) -> None:
        self._rules, self._counter = rules, counter
        self._entries = Entries(capacity)

    @abstractmethod
    def look_up(self, sent: Sent, now: float) -> Reading:
        """What a request that arrives now reads, and will write. now: seconds."""


class MarkedCache(Cache):
    """Reads and writes where requests are marked."""

    def look_up(self, sent: Sent, now: float) -> Reading:
        """Up to the longest prefix known, looking back from each mark."""
        keys, ends = _prefixes(sent.blocks, self._counter)
        marks = [index for index, block in enumerate(sent.blocks) if block.lives is not None]
        longest = self._longest(keys, marks, now)
        if longest >= 0:
            self._entries.use(keys[longest], now)
        for mark in marks:
            if mark < longest and self._entries.has(keys[mark], now):
                self._entries.use(keys[mark], now)
        read = ends[longest] if longest >= 0 else 0
        new = [mark for mark in marks if ends[mark] > read and ends[mark] >= self._rules.minimum]
        new = new[-self._rules.breakpoints :]
        hours = [ends[mark] for mark in new if sent.blocks[mark].lives == HOUR]
        hour = max(hours, default=read)
        last = max([ends[mark] for mark in new], default=read)
        total = ends[-1] if ends else 0

        def begin(then: float) -> None:
            before = read
            for mark in new:
                lives = sent.blocks[mark].lives
                assert lives is not None
                self._entries.put(keys[mark], then, lives, ends[mark] - before)
                before = ends[mark]

        return Reading(total - last, read, last - hour, hour - read, begin)

    def _longest(self, keys: list[bytes], marks: list[int], now: float) -> int:
        """The last block of the longest cached prefix, or -1."""
        back = max(1, self._rules.lookback)
        looked = marks[-self._rules.lookups :]
        seen = {index for mark in looked for index in range(max(0, mark - back + 1), mark + 1)}
        return max((mark for mark in seen if self._entries.has(keys[mark], now)), default=-1)


def _prefixes(blocks: tuple[Block, ...], counter: Counter) -> tuple[list[bytes], list[int]]:
    """(key of the prefix up to each block, its tokens)."""
    keys, ends, key, end = list[bytes](), list[int](), b"", 0
    for block in blocks:
        key = chained(key, f"{block.role} {int(block.begins)} {len(block.text)} {block.text}")
        end += counter.block(block)
        keys.append(key)
        ends.append(end)
    return keys, ends


class AutomaticCache(Cache):
    """Reads the longest prefix that the machine has seen, in steps, and writes all of them.

    The machine is that of the first tokens and the key. Once it has had its requests of a minute,
    others take over, which start empty, as those of the next minute are not the same.
    """

    ROUTED = 256
    """Tokens that decide on the machine."""
    UNKNOWN_STEP = 32
    """For providers that do not say in which steps hits come."""

    def __init__(self, rules: Rules, counter: Counter, capacity: float = inf) -> None:
        super().__init__(rules, counter, capacity)
        self._minutes: dict[int, tuple[int, int]] = {}

    def look_up(self, sent: Sent, now: float) -> Reading:
        """Up to the last step of the prefix that the machine knows."""
        rules = self._rules
        tokens = self._counter.tokens(sent)
        machine = self._machine(hash((sent.key, tuple(tokens[: self.ROUTED]))), now)
        step = rules.step if rules.step > 1 else self.UNKNOWN_STEP
        key, start, read, keys = hash(machine), 0, 0, list[int]()
        for end in range(rules.minimum, len(tokens) + 1, step):
            key = hash((key, tuple(tokens[start:end])))
            start = end
            keys.append(key)
        for index, each in enumerate(keys):
            if not self._entries.has(each, now):
                break
            self._entries.use(each, now)
            read = rules.minimum + index * step

        def begin(then: float) -> None:
            for index, each in enumerate(keys):
                self._entries.put(each, then, rules.lifetime, step if index else rules.minimum)

        return Reading(len(tokens) - read, read, 0, 0, begin)

    def _machine(self, route: int, now: float) -> tuple[int, int, int]:
        """(route, minute, number in it) of a machine that takes over; the first has no minute."""
        minute = int(now // 60)
        when, count = self._minutes.get(route, (minute, 0))
        count = count if when == minute else 0
        self._minutes[route] = (minute, count + 1)
        full = int(count / self._rules.per_key)
        return route, minute if full else -1, full
