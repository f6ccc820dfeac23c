"""Errors as HTTP answers: which status an error has, and the two forms of its body."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from relquery.errors import (
    CancelledError,
    ConfigError,
    DeadlineError,
    EngineEndedError,
    PromptTooLongError,
    QueryError,
    RequestError,
    TableError,
    is_too_long,
)
from relquery.prompt import Answer, Finish

ANTHROPIC_PATHS = ("/v1/messages",)
SHARED_PATHS = ("/v1/models", "/v1/files")
"""Of both APIs."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when there is no room on a disk, or for a user on it."""


def to_json(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """A value as JSON in ASCII, so that it may hold any text. default: makes what JSON has of what
    it has not. Raises ValueError for a number that JSON does not have."""
    return json.dumps(value, default=default, allow_nan=False, separators=(",", ":")).encode()


class Json(JSONResponse):
    """JSON in ASCII, which can hold the halves of characters that a client may have sent."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


@dataclass(eq=False)
class HttpError(Exception):
    """An error with a status of its own.

    code: a word for programs. param: the field that is wrong. headers: of the answer.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def bad_request(message: str, param: str | None = None, code: str = "invalid_request") -> HttpError:
    """A request that is wrong. For param and code see HttpError."""
    return HttpError(400, message, code, param)


@contextmanager
def refusing(param: str | None = None) -> Iterator[None]:
    """A block in which a ConfigError means a request that is wrong. param: see HttpError."""
    try:
        yield
    except ConfigError as error:
        raise bad_request(str(error), param) from error


def not_supported(name: str, instead: str = "") -> HttpError:
    """A field that the server does not support is refused by its name."""
    more = f" {instead}" if instead else " Leave it out."
    return HttpError(400, f"'{name}' is not supported by this server.{more}", "unsupported", name)


def stopping() -> HttpError:
    """What a server answers that was told to stop."""
    return HttpError(503, "The server is stopping.", "stopping", headers={"Retry-After": "5"})


def as_http(error: BaseException) -> HttpError:
    """What an error means to a client; an unforeseen one says nothing of the server's inside."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, DeadlineError):  # which says when the last answer would come
        headers = {"x-relquery-estimate": f"{error.estimate:.6g}"}
        place = "relquery.deadline"
        return HttpError(422, str(error), "deadline_cannot_be_met", place, headers)
    if isinstance(error, OSError) and error.errno in FULL:
        return HttpError(
            507, "The server's disk is full. Delete files, or ask again later.", "disk_full"
        )
    for kinds, status, code in _MEANINGS:
        if isinstance(error, kinds):
            headers = {"Retry-After": "1"} if status == 503 else {}
            return HttpError(status, str(error), code, headers=headers)
    return HttpError(500, "An error in the server. Its log says more.", "internal_error")


def unanswered(answer: Answer) -> HttpError:
    """Why an answer has no text."""
    if answer.finish is Finish.CANCELLED:
        return HttpError(504, answer.error or "The request was cancelled.", "cancelled")
    told = answer.error or "The request cannot be served."
    code = "context_length_exceeded" if is_too_long(told) else "invalid_request"
    return HttpError(400, told, code)


_Kinds = tuple[type[BaseException], ...]
_MEANINGS: tuple[tuple[_Kinds, int, str], ...] = (
    ((PromptTooLongError,), 400, "context_length_exceeded"),
    ((EngineEndedError,), 503, "engine_ended"),
    ((CancelledError,), 504, "cancelled"),
    ((QueryError, RequestError, ConfigError, TableError), 400, "invalid_request"),
)
"""What errors mean: the first that fits counts."""

_OPENAI_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_KINDS = _OPENAI_KINDS | {413: "request_too_large", 503: "overloaded_error"}


def openai_body(error: HttpError) -> dict[str, Any]:
    """The body of an error in OpenAI's form."""
    usual = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = _OPENAI_KINDS.get(error.status, usual)
    about = {"param": error.param, "code": error.code}
    return {"error": {"message": error.message, "type": kind, **about}}


def anthropic_body(error: HttpError, request: str = "") -> dict[str, Any]:
    """The body of an error in Anthropic's form. request: its id."""
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_KINDS.get(error.status, usual)
    told = {"type": kind, "message": error.message}
    return {"type": "error", "error": told, "request_id": request or None}


def body_of(error: HttpError, path: str, request: str) -> dict[str, Any]:
    """The body of an error in the form of a path's API. request: its id."""
    is_theirs = path.startswith(ANTHROPIC_PATHS)
    return anthropic_body(error, request) if is_theirs else openai_body(error)


def is_anthropic(scope: Scope) -> bool:
    """Whether a request is for Anthropic's API: by its path, or by the header that it has there."""
    path: str = scope["path"]
    if path.startswith(SHARED_PATHS):
        return any(name == b"anthropic-version" for name, _ in scope["headers"])
    return path.startswith(ANTHROPIC_PATHS)


def response_of(error: HttpError, scope: Scope, request: str = "") -> Response:
    """An error in the form of the API that a request is for."""
    body = anthropic_body(error, request) if is_anthropic(scope) else openai_body(error)
    return Json(body, error.status, dict(error.headers))
