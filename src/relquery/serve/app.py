"""The application: all routes, and how errors are answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from relquery.errors import RelqueryError
from relquery.serve.body import check_json, invalid
from relquery.serve.console import page, state
from relquery.serve.errors import Ascii, HttpError, as_http, response_of
from relquery.serve.operation import health, metrics
from relquery.serve.operation.openapi import Documented
from relquery.serve.ours import scores, tokens
from relquery.serve.ours.markup import routes as markup
from relquery.serve.ours.relqueries import routes as relqueries
from relquery.serve.ours.sql import routes as sql
from relquery.serve.ours.trees import routes as trees
from relquery.serve.wire import models
from relquery.serve.wire.anthropic import messages
from relquery.serve.wire.openai import chat, completions
from relquery.serve.wire.openai.batches import batch_routes, file_routes
from relquery.serve.wire.openai.responses import route as responses

ROUTERS = (
    chat.router,
    completions.router,
    responses.router,
    models.router,
    file_routes.router,
    batch_routes.router,
    messages.router,
    scores.router,
    tokens.router,
    sql.router,
    relqueries.router,
    trees.router,
    markup.router,
    state.router,
    health.router,
    metrics.router,
    page.router,
)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def make_app(lifespan: Lifespan | None = None, *, needs_keys: bool = False) -> FastAPI:
    """The routes. Requests reach them through middleware.Front, which says whose they are.

    needs_keys: whether clients must send a key, for the OpenAPI document.
    """
    app = Documented(
        title="relquery",
        version=version("relquery"),
        summary="LLM queries over relational data, behind the forms that clients speak",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=Ascii,
    )
    app.needs_keys = needs_keys
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(_check_body)])
    app.add_exception_handler(HttpError, _answer)
    app.add_exception_handler(RelqueryError, _answer)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer)
    return app


async def _check_body(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        check_json(await request.body())


async def _answer(request: Request, error: Exception) -> Response:
    return _respond(request, as_http(error))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(request, invalid(error.errors()))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, HttpError):  # what the body broke with, not how it was read
        return _respond(request, error.__cause__)
    message = {
        404: _no_path(request),
        405: f"{request.url.path} does not take {request.method}.",
    }.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
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
    return sorted({method for each in matching for method in each.methods or ()})


def _respond(request: Request, error: HttpError) -> Response:
    request.state.error = error  # for the log
    return response_of(error, request.scope, request.state.request_id)
