"""The application: all routes, and how errors are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from relquery.errors import RelqueryError
from relquery.serve import queries, scores, status
from relquery.serve.anthropic import messages
from relquery.serve.batches import routes as batches
from relquery.serve.bodies import check_body, invalid
from relquery.serve.errors import HttpError, Json, as_http, response_of
from relquery.serve.openai import completions, responses

ROUTERS = (
    *(completions.router, responses.router, messages.router),
    *(batches.router, batches.message_router),
    *(scores.router, queries.router, status.router),
)
OPEN = ("/health", "/health/live", "/health/ready")
"""Paths that need no key."""
_KEYS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `relquery keys`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def make_app(lifespan: Lifespan | None = None, *, needs_keys: bool = False) -> FastAPI:
    """The routes. Requests reach them through RequestMiddleware, which says whose they are.

    needs_keys: whether clients must send a key, for the OpenAPI document.
    """
    app = FastAPI(
        title="relquery",
        version=version("relquery"),
        summary="LLM queries over relational data, behind the forms that clients speak",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
        dependencies=[Depends(check_body)],
        responses={"default": {"description": "An error", "content": {"application/json": {}}}},
    )

    def described() -> dict[str, Any]:
        document = app.openapi()
        if needs_keys:
            document["components"]["securitySchemes"] = _KEYS
            for path, operations in document["paths"].items():
                for each in operations.values() if path not in OPEN else ():
                    each["security"] = [{name: []} for name in _KEYS]
        return document

    async def document() -> Response:
        return Json(await asyncio.to_thread(described))

    app.add_api_route("/openapi.json", document, include_in_schema=False)
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route("/mcp", _Tools()))
    for kind in (HttpError, RelqueryError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    return app


class _Tools:
    """/mcp: tools over the routes. Each request is answered by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises HttpError without the package of the protocol, which takes long to import."""
        try:
            from relquery.serve.mcp import answer
        except ImportError:
            needs = "The server needs a package for MCP: pip install 'relquery[mcp]'."
            raise HttpError(501, needs, "missing_extra") from None
        await answer(scope, receive, send)


async def _answer(request: Request, error: Exception) -> Response:
    http_error = as_http(error)
    if isinstance(error, RequestValidationError):
        http_error = invalid(error.errors())
    elif isinstance(error, HTTPException):
        cause = error.__cause__  # what the body broke with, not how it was read
        http_error = cause if isinstance(cause, HttpError) else _unrouted(request, error)
    request.state.error = http_error  # for the log
    return response_of(http_error, request.scope, request.state.request_id)


def _unrouted(request: Request, error: HTTPException) -> HttpError:
    """What a request means that no route has taken. It names all methods of a path, and the path
    that is meant where an SDK's base URL has /v1 too often or not at all."""
    path, message, headers = request.url.path, str(error.detail), dict(error.headers or {})
    routes = [each for router in ROUTERS for each in router.routes if isinstance(each, Route)]
    if error.status_code == 404:
        message = f"There is no {path} here. /openapi.json lists all paths."
        for other in {f"/v1{path}", path.removeprefix("/v1")} - {path}:
            scope = {**request.scope, "path": other}
            if any(each.matches(scope)[0] is Match.FULL for each in routes):
                message = f"There is no {path} here. Did you mean {other}? Check the client's URL."
    if error.status_code == 405:
        matching = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
        methods = {method for each in matching for method in each.methods or ()}
        methods |= {"HEAD"} if "GET" in methods else set()
        message = f"{path} does not take {request.method}."
        headers["Allow"] = ", ".join(sorted(methods)) or headers["Allow"]
    return HttpError(error.status_code, message, headers=headers)
