"""The requests of an engine, waiting and running, and the relQueries that they belong to."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.request import Request
from relquery.prompt import Finish


class Queue:
    """An ordered set of requests: joining, leaving from anywhere and being put first are O(1).

    `lengths` and `pick` need arrays. They are kept while requests join at the end and leave from
    the front, and rebuilt otherwise. changes: requests that joined or left since the owner emptied
    it; only recorded with `logs`, so that a queue whose owner does not empty it does not grow.
    """

    def __init__(self, *, logs: bool = False) -> None:
        self.changes: list[Request] = []
        self._logs = logs
        self._requests: OrderedDict[Request, None] = OrderedDict()
        self._array: list[Request] = []
        self._lengths = array("q")
        self._gone = 0  # requests of the arrays that have left
        self._stale = False

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def append(self, request: Request) -> None:
        """Add a request at the end of the queue."""
        self._requests[request] = None
        if not self._stale:
            self._array.append(request)
            self._lengths.append(request.length)
        self._change(request)

    def put_first(self, request: Request) -> None:
        """Add a request at the front of the queue."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)
        self._stale, self._array = True, []
        self._change(request)

    def remove(self, request: Request) -> None:
        """Remove a request. Raises KeyError if it is not waiting."""
        del self._requests[request]
        if not self._stale and self._array[self._gone] is request:
            self._gone += 1
            if 2 * self._gone > len(self._array):
                del self._array[: self._gone], self._lengths[: self._gone]
                self._gone = 0
        else:
            self._stale, self._array = True, []
        self._change(request)

    @property
    def lengths(self) -> Int64s:
        """(n,) tokens of prompt and output of each request, in order."""
        self._refresh()
        return np.array(self._lengths[self._gone :])

    def pick(self, indices: Sequence[int]) -> list[Request]:
        """The requests at these places, 0 being the front."""
        self._refresh()
        return [self._array[self._gone + index] for index in indices]

    def _change(self, request: Request) -> None:
        if self._logs:
            self.changes.append(request)

    def _refresh(self) -> None:
        if self._stale:
            self._array = list(self._requests)
            self._lengths = array("q", [request.length for request in self._array])
            self._gone, self._stale = 0, False


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a relQuery's arrival to its last answer, in three parts (paper 003, eq. 2).

    waiting: until the step begins that computes its first prompt. core: until the step ends that
    computes its last prompt. tail: until its last answer.
    """

    waiting: float
    core: float
    tail: float

    @property
    def total(self) -> float:
        """The sum of all three parts."""
        return self.waiting + self.core + self.tail


@dataclass(slots=True, eq=False, weakref_slot=True)
class RelQuery:
    """Requests that belong together. Only the engine's loop changes it.

    arrival: of the first request, in seconds on the engine's clock. tenant: the client. name: that
    the client gave it, if any. size: number of submitted requests. refused: requests that came and
    could not be served. rows: requests that will come in all, if the client said. deadline: on the
    engine's clock, when its open requests end without an answer. prompt_tokens: of all submitted
    requests. output_limit: the most tokens that an answer may have. allowed_tokens: the sum of
    max_tokens over the submitted requests. waiting, running: the open requests. answered: requests
    that ended with an answer. answered_tokens: tokens of their answers.
    computed_prompts: prompt tokens computed so far, without those served from the cache.
    drawn_tokens: answer tokens drawn so far.
    started: when the first step with one of its requests began. prefilled: when the last step that
    computed a prompt ended. ended: when its last request ended; None while one is open.
    """

    id: int
    arrival: float
    tenant: str = ""
    name: str | None = None
    size: int = 0
    refused: int = 0
    rows: int | None = None
    deadline: float | None = None
    prompt_tokens: int = 0
    output_limit: int = 0
    allowed_tokens: int = 0
    waiting: Queue = field(default_factory=Queue)
    running: dict[Request, None] = field(default_factory=dict)
    answered: int = 0
    answered_tokens: int = 0
    computed_prompts: int = 0
    drawn_tokens: int = 0
    started: float | None = None
    prefilled: float | None = None
    ended: float | None = None

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + len(self.running)

    @property
    def expected(self) -> int:
        """Declared rows that have not come yet."""
        return 0 if self.rows is None else max(0, self.rows - self.size - self.refused)

    @property
    def mean_prompt(self) -> float:
        """Tokens of a prompt, the mean of those that have come."""
        return self.prompt_tokens / self.size if self.size else 0.0

    @property
    def mean_limit(self) -> float:
        """Mean max_tokens of the submitted requests."""
        return self.allowed_tokens / self.size if self.size else 0.0

    @property
    def latency(self) -> Latency | None:
        """Its latency; None before it ends, or if it ended without being started."""
        if self.started is None or self.ended is None:
            return None
        computed = self.ended if self.prefilled is None else self.prefilled
        return Latency(self.started - self.arrival, computed - self.started, self.ended - computed)


FORGOTTEN_AFTER = 600.0
"""Seconds without an open request after which a name means a new relQuery."""
MOST_IDLE = 4096
"""Named relQueries without an open request that are remembered, the latest ones."""


class NamedQueries:
    """The relQueries with a name, by tenant and name.

    One is forgotten when all its declared rows have come and ended, or some time after its last
    request has ended.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RelQuery] = {}
        self._idle: OrderedDict[tuple[str, str], RelQuery] = OrderedDict()  # longest first

    def __len__(self) -> int:
        return len(self._known)

    def find(self, tenant: str, name: str | None, now: float) -> RelQuery | None:
        """The relQuery that a tenant gave this name."""
        self._forget_idle(now)
        return None if name is None else self._known.get((tenant, name))

    def add(self, relquery: RelQuery) -> None:
        """Remember a relQuery that has a request, if it has a name."""
        if relquery.name is not None:
            key = relquery.tenant, relquery.name
            self._known[key] = relquery
            self._idle.pop(key, None)

    def rest(self, relquery: RelQuery) -> None:
        """Note that a relQuery has no open request any more."""
        if relquery.name is None:
            return
        key = relquery.tenant, relquery.name
        if relquery.size == 0 or (relquery.rows is not None and not relquery.expected):
            self._known.pop(key, None)
            self._idle.pop(key, None)
            return
        self._idle[key] = relquery
        self._idle.move_to_end(key)
        if len(self._idle) > MOST_IDLE:
            self._forget_first()

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            ended = next(iter(self._idle.values())).ended
            assert ended is not None
            if now - ended < FORGOTTEN_AFTER:
                return
            self._forget_first()

    def _forget_first(self) -> None:
        key, _ = self._idle.popitem(last=False)
        del self._known[key]


class OpenRequests:
    """The waiting and running requests, and the relQueries that they belong to.

    changed: relQueries that have changed since `forget_changes`, in order. named: those that
    clients have named, also some without an open request. dated: the open ones with a deadline.
    """

    def __init__(self) -> None:
        self.waiting = Queue(logs=True)
        self.running: dict[Request, None] = {}
        self.relqueries: dict[int, RelQuery] = {}
        self.changed: dict[RelQuery, None] = {}
        self.named = NamedQueries()
        self.dated: dict[RelQuery, None] = {}

    def __bool__(self) -> bool:
        return bool(self.waiting or self.running)

    def of(self, request: Request) -> RelQuery:
        """The relQuery that an open request belongs to."""
        return self.relqueries[request.group]

    def join(
        self, request: Request, tenant: str, declared: Declared = NOTHING, now: float = 0.0
    ) -> RelQuery:
        """Queue a new request. tenant: of its relQuery, if it is the first request.

        If the relQuery is known by its declared id, the request gets its group.
        """
        relquery = self.named.find(tenant, declared.id, now) or self.relqueries.get(request.group)
        if relquery is None:
            relquery = RelQuery(request.group, request.arrival, tenant, declared.id)
        self._open(relquery, declared)
        request.group = relquery.id
        relquery.size += 1
        relquery.prompt_tokens += request.prompt_tokens
        relquery.output_limit = max(relquery.output_limit, request.max_tokens)
        relquery.allowed_tokens += request.max_tokens
        for queue in (self.waiting, relquery.waiting):
            queue.append(request)
        self.changed[relquery] = None
        return relquery

    def start(self, request: Request, now: float) -> None:
        """Move a waiting request to the running ones."""
        relquery = self._leave(request)
        self.running[request] = relquery.running[request] = None
        if relquery.started is None:
            relquery.started = now
        if request.started_at is None:
            request.started_at = now

    def put_back(self, request: Request) -> None:
        """Put a running request back at the front of the queue."""
        relquery = self._leave(request)
        for queue in (self.waiting, relquery.waiting):
            queue.put_first(request)
        self.changed[relquery] = None

    def end(self, request: Request, finish: Finish, now: float) -> None:
        """Remove a request, and its relQuery if this was the last one."""
        relquery = self._leave(request)
        if finish is not Finish.CANCELLED:
            relquery.answered += 1
            relquery.answered_tokens += len(request.output)
        request.finish, request.finished_at = finish, now
        self._end(relquery, now)

    def withdraw(self, request: Request, now: float) -> None:
        """Remove a request that has not started, as if it had never come."""
        relquery = self._leave(request)
        relquery.size -= 1
        relquery.prompt_tokens -= request.prompt_tokens
        relquery.allowed_tokens -= request.max_tokens
        left = [each.max_tokens for each in (*relquery.waiting, *relquery.running)]
        relquery.output_limit = max(left, default=relquery.output_limit)
        request.finish, request.finished_at = Finish.CANCELLED, now
        self._end(relquery, now)

    def decline(self, tenant: str, declared: Declared, count: int, now: float) -> None:
        """Note that requests of a named relQuery, if it is known, could not be served."""
        relquery = self.named.find(tenant, declared.id, now)
        if relquery is not None:
            relquery.refused += count
            if relquery.open:
                self.changed[relquery] = None
            else:
                self.named.rest(relquery)

    def late(self, now: float) -> list[Request]:
        """The open requests whose deadline has passed; each gets an error that says so."""
        requests = []
        for relquery in self.dated:
            assert relquery.deadline is not None
            if relquery.deadline <= now:
                requests += [*relquery.waiting, *relquery.running]
                seconds = relquery.deadline - relquery.arrival
                for request in (*relquery.waiting, *relquery.running):
                    request.error = (
                        f"The deadline of its relQuery, {seconds:g} s after the arrival, passed "
                        "before its answer was whole. Give a later deadline, or send fewer rows."
                    )
        return requests

    def forget_changes(self) -> None:
        """Clear the list of changes."""
        self.changed, self.waiting.changes = {}, []

    def _open(self, relquery: RelQuery, declared: Declared) -> None:
        """Take in what is declared about a relQuery that has, or now gets, an open request."""
        self.relqueries[relquery.id] = relquery
        relquery.ended = None
        if declared.rows is not None:
            relquery.rows = declared.rows
        if declared.deadline is not None and not relquery.size:
            relquery.deadline = relquery.arrival + declared.deadline
        if relquery.deadline is not None:
            self.dated[relquery] = None
        self.named.add(relquery)

    def _end(self, relquery: RelQuery, now: float) -> None:
        """Note that a request of a relQuery has ended, and end it if this was the last one."""
        self.changed[relquery] = None
        if not relquery.open:
            relquery.ended = now
            relquery.waiting = Queue()  # the old one's array may hold requests that have ended
            self.dated.pop(relquery, None)
            self.named.rest(relquery)
            del self.relqueries[relquery.id]

    def _leave(self, request: Request) -> RelQuery:
        relquery = self.of(request)
        if request in self.running:
            del self.running[request], relquery.running[request]
        else:
            self.waiting.remove(request)
            relquery.waiting.remove(request)
        return relquery
