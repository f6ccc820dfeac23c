"""The open requests of an engine: waiting and running ones, and their relQueries."""

from __future__ import annotations

from relquery.engine.request.queue import Queue
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.prompt import Finish


class OpenRequests:
    """The waiting and running requests, and the relQueries that they belong to.

    changed: relQueries that have changed since `forget_changes`, in order.
    """

    def __init__(self) -> None:
        self.waiting = Queue(logs=True)
        self.running: dict[Request, None] = {}
        self.relqueries: dict[int, RelQuery] = {}
        self.changed: dict[RelQuery, None] = {}

    def __bool__(self) -> bool:
        return bool(self.waiting or self.running)

    def of(self, request: Request) -> RelQuery:
        """The relQuery that an open request belongs to."""
        return self.relqueries[request.group]

    def join(self, request: Request, tenant: str) -> RelQuery:
        """Queue a new request. tenant: of its relQuery, if it is the first request."""
        relquery = self.relqueries.get(request.group)
        if relquery is None:
            relquery = RelQuery(request.group, request.arrival, tenant)
            self.relqueries[request.group] = relquery
        relquery.size += 1
        relquery.output_limit = max(relquery.output_limit, request.max_tokens)
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
        self.changed[relquery] = None
        if not relquery.open:
            relquery.ended = now
            del self.relqueries[relquery.id]

    def forget_changes(self) -> None:
        """Clear the list of changes."""
        self.changed, self.waiting.changes = {}, []

    def _leave(self, request: Request) -> RelQuery:
        relquery = self.of(request)
        if request in self.running:
            del self.running[request], relquery.running[request]
        else:
            self.waiting.remove(request)
            relquery.waiting.remove(request)
        return relquery
