"""/mcp: tools over the routes of this server."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from relquery.serve.errors import HttpError

PATH = "/mcp"


class _Endpoint:
    """Answers each request by itself; nothing is kept between them."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises HttpError without the package of the protocol, which takes long to import."""
        try:
            from relquery.serve.mcp.tools import answer
        except ImportError:
            needs = "The server needs a package for MCP: pip install 'relquery[mcp]'."
            raise HttpError(501, needs, "missing_extra") from None
        await answer(self._app, scope, receive, send)


def add_tools(app: FastAPI) -> None:
    """Have an application serve the tools, too."""
    app.router.routes.append(Route(PATH, _Endpoint(app)))
