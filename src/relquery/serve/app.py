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
from relquery.serve import embeddings, models, queries, scores, sql, status
from relquery.serve.anthropic import messages
from relquery.serve.batches import routes as batches
from relquery.serve.body import check_body, invalid
from relquery.serve.errors import (
    AnthropicError,
    HttpError,
    Json,
    OpenAIError,
    as_http,
    response_of,
)
from relquery.serve.openai import completions, responses

ROUTERS = (
    *(completions.router, responses.router, models.router, messages.router),
    *(batches.router, batches.message_router),
    *(embeddings.router, scores.router, sql.router, queries.router, status.router),
)
OPEN = ("/health", "/health/live", "/health/ready")
"""Paths that need no key."""
_KEYS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `relquery keys`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


class Documented(FastAPI):
    """An application whose OpenAPI document says where a key is needed. needs_keys: whether."""

    needs_keys = False

    def openapi(self) -> dict[str, Any]:
        """The document."""
        if self.openapi_schema is None and self.needs_keys:
            found = super().openapi()
            found["components"]["securitySchemes"] = _KEYS
            for path, operations in found["paths"].items():
                for each in operations.values() if path not in OPEN else ():
                    each["security"] = [{name: []} for name in _KEYS]
        return super().openapi()


def make_app(lifespan: Lifespan | None = None, *, needs_keys: bool = False) -> FastAPI:
    """The routes. Requests reach them through RequestMiddleware, which says whose they are.

    needs_keys: whether clients must send a key, for the OpenAPI document.
    """
    app = Documented(
        title="relquery",
        version=version("relquery"),
        summary="LLM queries over relational data, behind the forms that clients speak",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
        dependencies=[Depends(check_body)],
        responses={
            "default": {"model": OpenAIError | AnthropicError, "description": "An error"},
        },
    )
    app.needs_keys = needs_keys

    async def document() -> Response:
        return Json(await asyncio.to_thread(app.openapi))

    app.add_api_route("/openapi.json", document, include_in_schema=False)
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route("/mcp", _Tools(app)))
    app.add_exception_handler(HttpError, _answer)
    app.add_exception_handler(RelqueryError, _answer)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer)
    return app


class _Tools:
    """/mcp: tools over the routes. Each request is answered by itself."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises HttpError without the package of the protocol, which takes long to import."""
        try:
            from relquery.serve.mcp import answer
        except ImportError:
            needs = "The server needs a package for MCP: pip install 'relquery[mcp]'."
            raise HttpError(501, needs, "missing_extra") from None
        await answer(self._app, scope, receive, send)


async def _answer(request: Request, error: Exception) -> Response:
    return _respond(request, as_http(error))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(request, invalid(error.errors()))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, HttpError):  # what the body broke with, not how it was read
        return _respond(request, error.__cause__)
    message, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        message = _no_path(request)
    if error.status_code == 405:
        message = f"{request.url.path} does not take {request.method}."
        headers["Allow"] = ", ".join(_methods(request)) or headers["Allow"]
    return _respond(request, HttpError(error.status_code, message, None, None, headers))


def _no_path(request: Request) -> str:
    """Also for SDKs whose base URL has /v1 too often or not at all."""
    path = request.url.path
    for other in (f"/v1{path}", path.removeprefix("/v1")):
        scope = {**request.scope, "path": other}
        if other != path and any(route.matches(scope)[0] is Match.FULL for route in _routes()):
            return f"There is no {path} here. Did you mean {other}? Check the client's base URL."
    return f"There is no {path} here. /openapi.json lists all paths."


def _routes() -> list[Route]:
    return [each for router in ROUTERS for each in router.routes if isinstance(each, Route)]


def _methods(request: Request) -> list[str]:
    """The methods that a path takes, by all of its routes; Starlette tells those of the first."""
    matching = [each for each in _routes() if each.matches(request.scope)[0] is not Match.NONE]
    found = {method for each in matching for method in each.methods or ()}
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _respond(request: Request, error: HttpError) -> Response:
    request.state.error = error  # for the log
    return response_of(error, request.scope, request.state.request_id)
