"""What a route asks of the server for its caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

import relquery.engine.requests.declared as engine
from relquery.backends.service.client import EngineClient
from relquery.errors import ConfigError
from relquery.serve.access.declared import HEADER, read_declared
from relquery.serve.access.gate import Asker
from relquery.serve.body import Declared
from relquery.serve.errors import HttpError
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
        """Ask prompts; see Server.start. declared: the relQuery, if the body has it; the header
        may have it too. Raises HttpError."""
        found = self._agreed(declared)
        if found is not None:
            more["declared"] = _checked(found)
        return self.server.start(groups, self.asker, streamed=streamed, **more)

    def backend(self, declared: Declared | None = None, adapter: str = "") -> EngineClient:
        """The engine for one thread. declared: the relQuery that all of its calls belong to.
        adapter: that answers."""
        found = self._agreed(declared)
        checked = None if found is None else _checked(found)
        return self.server.backend(self.asker, checked, adapter)

    def adapter(self, model: str | None) -> str:
        """The adapter that a body's model means; see Server.check_model."""
        return "" if model is None else self.server.check_model(model)

    def _agreed(self, in_body: Declared | None) -> Declared | None:
        """What the body and the headers declare; where they say the same, once. Raises HttpError
        where they do not."""
        found = in_body
        for text in self._request.headers.getlist(HEADER):
            declared = read_declared(text)
            found = declared if found is None else _joined(found, declared)
        return found


def _joined(one: Declared, other: Declared) -> Declared:
    """What both say. Raises HttpError if they say different things."""
    fields = one.model_dump(exclude_none=True)
    for name, value in other.model_dump(exclude_none=True).items():
        if fields.setdefault(name, value) != value:
            raise HttpError(
                400,
                f"The header '{HEADER}' has {name}={value}, but the field 'relquery' of the body, "
                f"or another such header, has {name}={fields[name]}. Give one of them.",
                "invalid_request",
                f"{HEADER}.{name}",
            )
    return Declared(**fields)


def _checked(declared: Declared) -> engine.Declared:
    """For the engine. Raises HttpError."""
    try:
        return engine.Declared(declared.id, declared.rows, declared.deadline)
    except ConfigError as error:
        raise HttpError(400, str(error), "invalid_request", HEADER) from error
