"""The open requests of an engine: waiting and running ones, and their relQueries."""

from __future__ import annotations

from relquery.engine.request.clients.declared import NOTHING, Declared
from relquery.engine.request.clients.named import NamedQueries
from relquery.engine.request.queue import Queue
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.prompt import Finish


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
        found = []
        for relquery in self.dated:
            assert relquery.deadline is not None
            if relquery.deadline <= now:
                found += [*relquery.waiting, *relquery.running]
                seconds = relquery.deadline - relquery.arrival
                for request in (*relquery.waiting, *relquery.running):
                    request.error = (
                        f"The deadline of its relQuery, {seconds:g} s after the arrival, passed "
                        "before its answer was whole. Give a later deadline, or send fewer rows."
                    )
        return found

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
