"""The block pool: references, lookup by key, and eviction of the least recently used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relquery.engine.block_pool import BlockPool
from relquery.engine.requests.pieces import Keep
from tests.engine.scenarios import paragraphs


class Pool:
    """What lines of a text say is done with a pool."""

    def __init__(self, lines: list[str]) -> None:
        blocks, *kept = map(int, lines.pop(0).split()[1:])
        self.now = 0.0
        options: Any = {"most_kept": kept[0]} if kept else {}
        self.pool = BlockPool(blocks, now=lambda: self.now, **options)
        self.named: dict[str, int] = {}
        for line in lines:
            what, *given = line.split()
            if what == "=":
                for said in line[2:].split(", "):
                    self.check(*said.split())
            else:
                getattr(self, what)(*given)
            self.pool.check()

    def check(self, what: str, *expected: str) -> None:
        match what:
            case "found":
                found = {key: self.pool.lookup(key.encode()) for key in "abc"}
                known = [key for key, block in found.items() if block is not None]
                assert "".join(known) == expected[0].strip("-")
                assert all(found[key] == self.named[key] for key in known)
            case "references":
                assert self.pool.references(self.named[expected[0]]) == int(expected[1])
            case "changes":
                assert self.pool.changes == [key.encode() for key in expected[0]]
                self.pool.changes = []
            case _:
                assert getattr(self.pool, what) == int(expected[0]), what

    def allocate(self, names: str) -> list[int]:
        blocks = self.pool.allocate(len(names))
        assert blocks is not None
        assert len({*blocks}) == len(blocks)
        self.named |= dict(zip(names, blocks, strict=True))
        return blocks

    def none(self, count: str) -> None:
        assert self.pool.allocate(int(count)) is None

    def publish(self, keys: str) -> None:
        """The keys of blocks that have their names, or `key:name`."""
        keys, _, names = keys.partition(":")
        for key, block in zip(keys, self.allocate(names or keys), strict=True):
            self.pool.publish(key.encode(), block)

    def name(self, key: str, name: str) -> None:
        self.pool.publish(key.encode(), self.named[name])

    def release(self, names: str) -> None:
        self.pool.release([self.named[name] for name in names])

    def take(self, name: str) -> None:
        self.pool.take_all([self.named[name]])

    def withdraw(self, name: str) -> None:
        self.pool.withdraw(self.named[name])

    def keep(self, name: str, level: str, seconds: str | None = None) -> None:
        keep = Keep(int(level)) if seconds is None else Keep(int(level), float(seconds))
        self.pool.keep([self.named[name]], keep)

    def evict(self, count: str, evicted: str) -> None:
        assert self.pool.evict(int(count)) == int(evicted)

    def at(self, now: str) -> None:
        self.now = float(now)

    def same(self, names: str) -> None:
        assert len({self.named[name] for name in names}) == 1


@pytest.mark.parametrize(("title", "lines"), paragraphs(Path(__file__).with_name("pools.txt")))
def test_a_pool(title: str, lines: list[str]) -> None:
    Pool(list(lines))


def test_check_notices_a_block_that_is_released_twice_and_a_key_without_its_block() -> None:
    twice, lost = BlockPool(2), BlockPool(2)
    blocks = twice.allocate(1) or []
    twice.release(blocks)
    twice.release(blocks)
    lost._block_of[b"b"] = 1
    for pool in (twice, lost):
        with pytest.raises(AssertionError):
            pool.check()
