"""Turns in which the prompts of a call are asked: now those that nobody else is asking.

The others are waited for. What has been answered elsewhere is taken from the ledger; what was given
back without an answer is asked in another turn. All claims of a turn end with it, before anything
is waited for: so two processes that claim in opposite orders never wait for each other.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import numpy as np

from relquery.arrays import Int64s
from relquery.lazy import LazySequence
from relquery.ledger.claims import LEASE, Claims, HeldClaim
from relquery.ledger.keys import Keys
from relquery.ledger.saving import Saver, saving
from relquery.ledger.stored import AnswerStore, Fact, StoredCall
from relquery.prompt import Answer, Prompt

_FIRST_PAUSE, _LONGEST_PAUSE, _SLOWER = 0.02, 0.5, 1.5
_LOOKING = 10  # times as long as a look takes, at least, until the next one
_RENEWALS = 5  # of a lease

OnAnswer = Callable[[int, Answer], None]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The prompts that may be asked now."""

    prompts: Sequence[Prompt]
    """The prompts in the order given."""
    places: Int64s
    """(prompts,), the place of each among the keys."""
    known: dict[int, Answer]
    """Answers that came from elsewhere in the meantime, by place."""
    on_answer: OnAnswer
    """To be told of each answer as it comes, by its index among the prompts, from any thread."""


@contextmanager
def turns(
    prompts: Sequence[Prompt],
    places: Int64s,
    ledger: AnswerStore | None,
    keys: Keys | None,
    call: StoredCall,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Iterator[Turn]]:
    """A block in which prompts are asked, and their answers stored as they come.

    There is one turn where nobody else can ask: without a ledger, in memory, and in a folder.
    places: (prompts,), of each among the keys. keys, ledger: None if answers are not kept.
    """
    if ledger is None or keys is None:
        yield iter([Turn(prompts, places, {}, _ignore)])
        return
    with ExitStack() as open_:
        owner = None if ledger.claims is None else open_.enter_context(_owning(ledger.claims))
        keep = open_.enter_context(saving(ledger))
        if owner is None:
            yield iter([_alone(prompts, places, keys, keep)])
        else:
            shared = _Shared(prompts, places, ledger, keys, keep, call, owner)
            yield shared.turns(sleep)


def _ignore(index: int, answer: Answer) -> None:
    del index, answer


def _alone(prompts: Sequence[Prompt], places: Int64s, keys: Keys, keep: Saver) -> Turn:
    def on_answer(index: int, answer: Answer) -> None:
        keep(*keys.entry(int(places[index]), answer))

    return Turn(prompts, places, {}, on_answer)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Somebody who claims keys."""

    name: str
    claims: Claims
    renewing: Thread
    """The thread that renews the lease, once there are claims."""

    def take(self, keys: Sequence[bytes]) -> set[bytes]:
        """Claim those that nobody else has; all, if the file cannot be written."""
        try:
            mine = self.claims.take(self.name, keys)
        except sqlite3.Error:  # what saves the answers will tell
            return set(keys)
        if mine and not self.renewing.is_alive():
            self.renewing.start()
        return mine

    def give_back(self, keys: Sequence[bytes]) -> None:
        """Give claims back, if the file can be written."""
        with suppress(sqlite3.Error):
            self.claims.give_back(self.name, keys)


@contextmanager
def _owning(claims: Claims) -> Iterator[_Owner | None]:
    """An owner of claims, which are given back at the end; None if the file cannot be written."""
    try:
        name = claims.prepare()
    except sqlite3.Error:  # what saves the answers will tell
        yield None
        return
    over = Event()

    def renew() -> None:
        while not over.wait(LEASE / _RENEWALS):
            with suppress(sqlite3.Error):
                claims.renew(name)

    renewing = Thread(target=renew, name="relquery-lease", daemon=True)
    try:
        yield _Owner(name, claims, renewing)
    finally:
        over.set()
        if renewing.is_alive():
            renewing.join()
            with suppress(sqlite3.Error):
                claims.forget(name)


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """Prompts whose answers others may be asking."""

    prompts: Sequence[Prompt]
    places: Int64s
    ledger: AnswerStore
    keys: Keys
    keep: Saver
    call: StoredCall
    owner: _Owner
    unanswered: set[int] = field(default_factory=set)
    """Places that are asked now."""

    def turns(self, sleep: Callable[[float], None]) -> Iterator[Turn]:
        """Those that nobody else asks, as soon as nobody does."""
        left = free = np.arange(len(self.prompts))
        while True:
            known, mine = self._claimed(free)
            yield self._turn(mine, known)
            self._end()
            answered = np.isin(self.places[left], list(known))
            left = left[~(np.isin(left, mine) | answered)]
            if not len(left):
                return
            free = self._free(left, sleep)

    def _claimed(self, free: Int64s) -> tuple[dict[int, Answer], Int64s]:
        """What has been answered meanwhile, by place, and which prompts are ours to ask."""
        mine = self.owner.take(self._keys_of(free))
        ours = free[[key in mine for key in self._keys_of(free)]]
        # An answer and the end of the claim on it are stored at once: whoever has the claim now
        # finds the answer.
        places = self.places[ours].tolist()
        answers = self.ledger.find(self.keys.part(places)) if places else {}
        self.owner.give_back([self.keys.whole[places[place]] for place in answers])
        is_left = np.ones(len(ours), bool)
        is_left[list(answers)] = False
        return {places[place]: answer for place, answer in answers.items()}, ours[is_left]

    def _free(self, left: Int64s, sleep: Callable[[float], None]) -> Int64s:
        """Wait until nobody asks some of the prompts any more; returns those."""
        keys, pause = self._keys_of(left), _FIRST_PAUSE
        while True:
            began = time.perf_counter()
            free = self.owner.claims.free(keys)
            if free:
                return left[[key in free for key in keys]]
            sleep(max(pause, _LOOKING * (time.perf_counter() - began)))
            pause = min(_LONGEST_PAUSE, pause * _SLOWER)

    def _turn(self, mine: Int64s, known: dict[int, Answer]) -> Turn:
        places = self.places[mine]
        prompts = self.prompts
        if len(mine) < len(prompts):
            prompts = LazySequence(mine, lambda some: (self.prompts[place] for place in some))
        self.unanswered.update(places.tolist())

        def on_answer(index: int, answer: Answer) -> None:
            place = int(places[index])
            key, stored = self.keys.entry(place, answer)
            asked = self.keys.whole[place]
            fact = Fact.of(self.call, key, asked, answer)
            self.keep(key, stored, fact, HeldClaim(asked, self.owner.name))
            self.unanswered.discard(place)

        return Turn(prompts, places, known, on_answer)

    def _end(self) -> None:
        """Hold nothing that no answer has come to."""
        self.owner.give_back([self.keys.whole[place] for place in self.unanswered])
        self.unanswered.clear()

    def _keys_of(self, some: Int64s) -> list[bytes]:
        return [self.keys.whole[place] for place in self.places[some].tolist()]
