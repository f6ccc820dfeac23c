"""What a route asks of the server for its caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from relquery.backends.service.served import ServedBackend
from relquery.serve.access.gate import Asker
from relquery.serve.body import Declared
from relquery.serve.flow import Flow
from relquery.serve.server import Asked, Server


class Caller:
    """Who sends a request, and the server that it is sent to."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.server: Server = request.state.server
        self.asker: Asker = request.state.asker

    def start(
        self,
        groups: Sequence[Asked],
        *,
        streamed: bool = False,
        declared: Declared | None = None,
        **more: Any,
    ) -> Flow:
        """Ask prompts; see Server.start. declared: the relQuery, if the body has it; else the
        header may. Raises HttpError."""
        del declared
        return self.server.start(groups, self.asker, streamed=streamed, **more)

    def backend(self, declared: Declared | None = None) -> ServedBackend:
        """The engine for one thread. declared: the relQuery that all of its calls belong to."""
        del declared
        return self.server.backend(self.asker)
