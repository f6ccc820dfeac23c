"""The open requests of an engine: who waits, who runs, and for which relQuery."""

from __future__ import annotations

from relquery.engine.request.queue import Queue
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.prompt import Finish


class OpenRequests:
    """Those that wait and those that run, and the relQueries that they belong to.

    changed: relQueries of which something changed since `forget_changes`, in order.
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
        """Let a new request wait. tenant: of its relQuery, if it is the first."""
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
        """Let a waiting request run."""
        relquery = self._leave(request)
        self.running[request] = relquery.running[request] = None
        if relquery.started is None:
            relquery.started = now

    def put_back(self, request: Request) -> None:
        """Let a running request wait again, before all others."""
        relquery = self._leave(request)
        for queue in (self.waiting, relquery.waiting):
            queue.put_first(request)
        self.changed[relquery] = None

    def end(self, request: Request, finish: Finish, now: float) -> None:
        """Take a request out, and its relQuery with the last one."""
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
        """What changes from now on counts as new."""
        self.changed, self.waiting.changes = {}, []

    def _leave(self, request: Request) -> RelQuery:
        relquery = self.of(request)
        if request in self.running:
            del self.running[request], relquery.running[request]
        else:
            self.waiting.remove(request)
            relquery.waiting.remove(request)
        return relquery
