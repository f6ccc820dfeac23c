"""Priorities of relQueries, kept from step to step: only changed ones are estimated again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from relquery.config import EngineConfig
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.fairness import Deadlines, Ranking, Tail, Tenants
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.engine.scheduling.reuse import Draft

SLACK = 2.0
"""Steps full of tokens by which a tenant may be ahead of another."""
LOOKS, _SEARCHED = 4, 16
"""Waiting relQueries that are estimated again when one comes or begins, and among how many."""
DRIFT = 0.1
"""Relative change of how many relQueries decode at once after which all are ranked again."""
STEADY = 0.1
"""Weight in that number of how many do as one comes or begins."""
PATIENCE = 8
"""Steps in a row that a relQuery which starves may stand still while others begin."""


class Estimate(Protocol):
    """A relQuery's priority: a number; lower is more urgent."""

    def __call__(self, relquery: RelQuery, state: State) -> float: ...


@dataclass(frozen=True, slots=True)
class Fairness:
    """The degree to which long-waiting relQueries, or tenants served little, go before short ones.

    starvation: unit waiting time (paper 003, eq. 13), in seconds for each request that a relQuery
    arrived with. A relQuery that has waited that long since its arrival, begun or not, and still
    has waiting requests, has priority 0 from then on; None for never. aging: seconds of work that a
    second since the arrival makes up for. weights, others_share: shares of tenants, see Tenants.
    tail: the longest waits, as multiples of those under first come, first served (see Tail); None
    for any.
    """

    starvation: float | None = None
    aging: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    tail: float | None = None
    others_share: bool = False


Urgency = tuple[float, ...]
"""Whether the tenant has to step back; 0 for who is pressed by a deadline, 1 for who has a turn
(see Tail), otherwise 2; and the deadline, or the turn and the priority, or the priority: the lowest
goes first."""


E = TypeVar("E", bound=Estimate)


class Priorities(Generic[E]):
    """The memo of policies that order by priority.

    estimate: gives a relQuery's priority. fixed: keep the priority at its arrival; otherwise it is
    estimated again whenever one of its requests has been worked on or has ended. While the relQuery
    only waits, the last estimate is kept (paper 003, eq. 12). moved: it is also kept until such a
    share of the relQuery's requests has begun or ended; 0 for no such wait. remaining: by which
    deadlines are weighed; None if they are not. If it is `shared`, it is the estimate, too. Then
    all are charged alike, whenever they came, and those that wait are estimated again from time to
    time, as what is cached by now serves them, too.
    """

    def __init__(
        self,
        estimate: E,
        limits: EngineConfig,
        fairness: Fairness = Fairness(),
        *,
        fixed: bool = False,
        moved: float = 0.0,
        remaining: Remaining | None = None,
    ) -> None:
        self.estimate, self._fixed, self._moved = estimate, fixed, moved
        self._starvation, self._aging = fairness.starvation, fairness.aging
        slack = SLACK * limits.max_num_batched_tokens
        self._tenants = Tenants(fairness.weights, slack, others_share=fairness.others_share)
        self._ahead: frozenset[str] = frozenset()
        self._known: dict[int, _Known] = {}
        self._waiting: dict[str, Ranking] = {}  # per tenant, relQueries with waiting requests
        self._due = Ranking()  # those of them that do not starve yet, by when they will
        self._starved: set[int] = set()
        self._overdue: dict[int, None] = {}  # starved, with waiting requests and none running
        self._deadlines = None if remaining is None else Deadlines(remaining)
        self._pressed = {} if self._deadlines is None else self._deadlines.pressed
        self._remaining = remaining
        is_bounded = remaining is not None and fairness.tail is not None
        self._tail = Tail(fairness.tail or 0.0) if is_bounded else None
        self._shared = remaining if remaining is not None and remaining.shared else None
        self._running = 1.0  # relQueries that decode at once, of late
        self._share = 0.0 if self._shared is None else self._shared.step_seconds
        self._have_come = False  # or begun, since the last step
        self._looked: dict[int, None] = {}  # those that wait, in the order of their estimates
        self._unseen: dict[RelQuery, None] = {}  # changed, while nobody could begin
        self._first: RelQuery | None = None  # of the starving ones, that came first
        self._stood = 0  # steps in which it has not moved

    def __getitem__(self, relquery: int) -> Urgency:
        steps_back = self._known[relquery].tenant in self._ahead and not self.is_urgent(relquery)
        return steps_back, *self._key(relquery)

    def puts_off(self, state: State) -> bool:
        """Whether priorities do not matter now, as all seats are taken and none is taken away.

        Then `update` need not be called: it processes these changes when it is called next.
        """
        if len(state.running) < state.limits.max_num_seqs or not self.can_wait:
            return False
        if any(each.deadline is not None for each in state.changed):
            return False
        self._unseen |= dict.fromkeys(state.changed)
        return True

    @property
    def can_wait(self) -> bool:
        """Whether no moment matters: nobody starves, and no deadline presses."""
        return self._starvation is None and not self._deadlines

    @property
    def lasts(self) -> bool:
        """Whether the order of who waits holds for some steps: no moment matters, and no tenant
        has to step back for another."""
        return self.can_wait and len(self._waiting) <= 1

    def update(self, state: State) -> None:
        """Process what has changed."""
        changed, self._unseen = self._unseen | dict.fromkeys(state.changed), {}
        self._have_come = False
        for relquery in changed:
            if relquery.open:
                self._take_in(relquery, state)
            elif relquery.id in self._known:
                self._tenants.take_in(relquery)  # including the tokens of its last step
                if self._tail is not None and self._remaining is not None:
                    self._tail.note(relquery.id, self._remaining.done(relquery, state))
                self._forget(relquery.id)
        if self._shared is not None and self._have_come:
            self._charge(state, self._shared)
            self._look_again(state, self._shared)
        for number in self._due.take_until(state.now):
            self._starved.add(number)
            self._rank(state.relqueries[number])
        for number in () if self._deadlines is None else self._deadlines.update(state):
            self._rank(state.relqueries[number])
        for number in () if self._tail is None else self._tail.update():
            self._rank(state.relqueries[number])
        self._ahead = self._tenants.ahead(self._waiting)
        starved = (state.relqueries[number] for number in self._starved)
        self._first = min(starved, key=lambda each: (each.arrival, each.id), default=None)
        self._stood = 0 if self._first is None or self._first in changed else self._stood + 1

    def waiting(self, state: State) -> Iterator[RelQuery]:
        """The relQueries with waiting requests, the most urgent first."""
        if len(self._waiting) == 1:
            (only,) = self._waiting.values()
            return (state.relqueries[number] for number in only)
        ranked = [((self[number], number) for number in each) for each in self._waiting.values()]
        return (state.relqueries[number] for _, number in merge(*ranked))

    def candidates(self, state: State, draft: Draft) -> Iterator[RelQuery]:
        """The same, for further requests of a step that has begun what is overdue.

        There are none while a relQuery that starves could not be begun and others are pressed:
        these go before it, and would take all the room that it waits for.
        """
        if self._pressed and self._overdue:
            begun = {work.request.group for work in draft.work}
            if not begun.issuperset(self._overdue):
                return iter(())
        return self.waiting(state)

    def is_urgent(self, relquery: int) -> bool:
        """Whether it has waited too long, or is pressed by a deadline: it is not preempted."""
        return relquery in self._starved or relquery in self._pressed

    def overdue(self, state: State) -> Iterator[tuple[Request, bool]]:
        """Requests that must not wait any longer, and whether one may take the place of another.

        The first one of each starving relQuery with no running request: those never begun come
        first, in order of arrival. Before them comes what free seats can take of the starving
        relQuery that came first, if it has stood still for long: it would never end while others
        keep coming. Last, all of those that are pressed by a deadline, the earliest first.
        """
        first = self._first if self._stood >= PATIENCE else None
        if first is not None and first.waiting:
            seats = state.limits.max_num_seqs - len(state.running)
            alone = not first.running
            for place, request in enumerate(islice(first.waiting, max(seats, 1))):
                yield request, alone and place == 0
        relqueries = [state.relqueries[number] for number in self._overdue]
        for each in sorted(relqueries, key=lambda each: (each.started is not None, each.arrival)):
            if each is not first:
                yield next(iter(each.waiting)), True
        for number in sorted(self._pressed, key=self._pressed.__getitem__):
            begun = number in self._overdue  # its first one was there already
            waiting = islice(state.relqueries[number].waiting, int(begun), None)
            yield from ((request, True) for request in waiting)

    def should_decode(self, draft: Draft) -> bool:
        """Whether a step that would compute prompts is to decode: the starving relQuery that came
        first has stood still for long, and only its decodes are left to do.
        """
        first = self._first
        if first is None or self._stood < PATIENCE or not draft.work:
            return False
        if any(work.request.group == first.id for work in draft.work):
            return False
        return any(each.computed >= each.prompt_tokens for each in first.running)

    @property
    def count(self) -> int:
        """How many relQueries have waiting requests."""
        return sum(map(len, self._waiting.values()))

    def sort(self, requests: Collection[Request]) -> list[Request]:
        """Requests in the order of their relQueries, the most urgent first."""
        groups: dict[int, list[Request]] = {}
        for request in requests:
            groups.setdefault(request.group, []).append(request)
        order = sorted(groups, key=lambda number: (self[number], self._known[number].arrival))
        return [request for number in order for request in groups[number]]

    def order(self, state: State) -> list[RelQuery]:
        """All open relQueries, the most urgent first."""
        self.update(state)
        return sorted(state.relqueries.values(), key=lambda each: (self[each.id], each.arrival))

    def order_if_pressed(self, state: State, deadline: float) -> list[RelQuery]:
        """See Ordering."""
        self.update(state)
        dated = [
            (each.deadline, each.arrival, each)
            for each in state.relqueries.values()
            if each.deadline is not None and each.deadline <= deadline
        ]
        return [each for *_, each in sorted(dated, key=lambda one: one[:2])]

    def _key(self, number: int) -> tuple[float, ...]:
        """The key that ranks relQueries of one tenant. All age equally, so it stays valid."""
        if number in self._pressed:
            return 0.0, self._pressed[number]
        known = self._known[number]
        priority = known.priority + self._share * known.steps + self._aging * known.arrival
        if number in self._starved:
            return 2.0, 0.0
        if self._tail is not None and number in self._tail.turns:
            return 1.0, self._tail.turns[number], priority
        return 2.0, priority

    def _take_in(self, relquery: RelQuery, state: State) -> None:
        number = relquery.id
        self._tenants.take_in(relquery)
        known, shape = self._known.get(number), _Shape.of(relquery)
        has_moved = known is None or known.shape.has_moved(shape, self._moved)
        self._have_come |= known is None or known.shape.begun != shape.begun
        is_kept = self._fixed or (self._moved > 0 and not has_moved)
        if known is None or known.shape.size != shape.size or not is_kept:
            self._estimate(relquery, state, shape)
        elif has_moved:
            self._known[number] = known._replace(shape=shape)
        if self._deadlines is not None:
            self._deadlines.take_in(relquery, state)
        if self._tail is not None and self._remaining is not None:
            done = self._remaining.done(relquery, state)
            if has_moved:  # what is left is estimated again
                work, last = self._remaining.work(relquery, state)
                self._tail.take_in(number, work, last, done, relquery.size)
            else:
                self._tail.note(number, done)
        self._rank(relquery)

    def _estimate(self, relquery: RelQuery, state: State, shape: _Shape) -> None:
        if self._shared is None:
            priority, steps = self.estimate(relquery, state), 0.0
        else:
            priority, steps = self._shared.parts(relquery, state)
            self._looked.pop(relquery.id, None)
            if shape.waiting:
                self._looked[relquery.id] = None
        tenant = self._tenants.of(relquery)
        self._known[relquery.id] = _Known(tenant, relquery.arrival, priority, shape, steps)

    def _look_again(self, state: State, remaining: Remaining) -> None:
        """Estimate those anew that one which came later would overtake, the oldest estimates first:
        by now more of their prompts may be cached, too.
        """
        first = next((each for each in self.waiting(state) if each.started is None), None)
        if first is None:
            return
        oldest = list(islice(self._looked, _SEARCHED))
        earlier = (number for number in oldest if self._known[number].arrival < first.arrival)
        for number in islice(earlier, LOOKS):
            relquery = state.relqueries[number]
            remaining.look_again(relquery)
            self._estimate(relquery, state, _Shape.of(relquery))
            self._rank(relquery)

    def _charge(self, state: State, remaining: Remaining) -> None:
        """Charge all anew once many more or fewer decode at once."""
        count = len({request.group for request in state.running})
        self._running += STEADY * (max(1, count) - self._running)
        share = remaining.step_seconds / self._running
        if abs(share - self._share) > DRIFT * self._share:
            self._share = share
            for ranking in list(self._waiting.values()):
                for number in list(ranking):
                    ranking.set(number, *self._key(number), self._known[number].arrival)

    def _rank(self, relquery: RelQuery) -> None:
        """Put a relQuery where it belongs: among the waiting, soon starving or overdue ones."""
        number, waits = relquery.id, len(relquery.waiting) > 0
        if waits:
            ranking = self._waiting.setdefault(self._known[number].tenant, Ranking())
            ranking.set(number, *self._key(number), relquery.arrival)
        else:
            self._unrank(number, self._known[number].tenant)
        if self._starvation is None:
            return
        starves = number in self._starved
        if waits and not starves:
            self._due.set(number, relquery.arrival + self._starvation * relquery.size)
        else:
            self._due.discard(number)
        if waits and starves and not relquery.running:
            self._overdue.setdefault(number)
        else:
            self._overdue.pop(number, None)

    def _unrank(self, number: int, tenant: str) -> None:
        ranking = self._waiting.get(tenant)
        if ranking is not None:
            ranking.discard(number)
            if not len(ranking):
                del self._waiting[tenant]

    def _forget(self, number: int) -> None:
        self._unrank(number, self._known.pop(number).tenant)
        self._looked.pop(number, None)
        self._tenants.forget(number)
        if self._deadlines is not None:
            self._deadlines.forget(number)
        if self._tail is not None:
            self._tail.forget(number)
        self._starved.discard(number)
        self._overdue.pop(number, None)
        self._due.discard(number)


class _Shape(NamedTuple):
    """size: requests of a relQuery that have arrived. waiting, open: those of them that still wait,
    and that have not ended. begun: whether it ran before."""

    size: int
    waiting: int
    open: int
    begun: bool

    @classmethod
    def of(cls, relquery: RelQuery) -> _Shape:
        waiting = len(relquery.waiting)
        begun = relquery.started is not None
        return cls(relquery.size, waiting, waiting + len(relquery.running), begun)

    def has_moved(self, now: _Shape, share: float) -> bool:
        """Whether more than a share of its requests has begun or ended since."""
        if now.size != self.size or now.begun != self.begun:
            return True
        begun, ended = self.waiting - now.waiting, self.open - now.open
        return begun < 0 or begun > share * self.waiting or ended > share * self.open


class _Known(NamedTuple):
    """The record of a relQuery. priority: without the shared seconds of the steps that it decodes
    in. shape: when its work was estimated."""

    tenant: str
    arrival: float
    priority: float
    shape: _Shape
    steps: float = 0.0
