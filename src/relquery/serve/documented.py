"""What the OpenAPI document says of answers that are errors."""

from __future__ import annotations

from types import UnionType
from typing import Any

from pydantic import BaseModel


class OpenAIErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error in OpenAI's form."""

    error: OpenAIErrorDetail


class AnthropicErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(BaseModel):
    """An error in Anthropic's form."""

    type: str
    error: AnthropicErrorDetail
    request_id: str | None


_WORDS = {
    400: "The request is wrong, or asks for what is not supported",
    401: "No valid key",
    403: "The key, or the web page that sends this, is not allowed to",
    404: "Not found",
    408: "The request came too slowly",
    409: "In conflict with what is there",
    413: "The body is too large",
    422: "The deadline cannot be met",
    429: "Too many requests; Retry-After says when to ask again",
    503: "The engine or the server is not ready",
    504: "It took too long, or was cancelled",
}


_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    422: {"x-relquery-estimate": "Seconds until the last answer would come"},
    429: {"Retry-After": "Seconds after which to ask again"},
    503: {"Retry-After": "Seconds after which to ask again"},
}


def errors(
    *statuses: int, model: type[BaseModel] | UnionType = OpenAIError
) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: these and those that every route may give."""
    every = sorted({*statuses, 400, 401, 403, 408, 413, 429, 503})
    return {
        status: {"model": model, "description": _WORDS[status], "headers": _headers(status)}
        for status in every
    }


def _headers(status: int) -> dict[str, Any]:
    return {
        name: {"required": True, "description": said, "schema": {"type": "string"}}
        for name, said in _HEADERS.get(status, {}).items()
    }


def streamed(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route whose answers are whole, or events."""
    return {
        200: {
            "model": model,
            "description": "The answers; with stream = true as server-sent events",
            "content": {"text/event-stream": {}},
        }
    }


def standalone(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a body that a route reads by itself: what it refers to is written out."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            return whole(parts[name]) if name in parts else {k: whole(v) for k, v in value.items()}
        return [whole(each) for each in value] if isinstance(value, list) else value

    found: dict[str, Any] = whole(schema)
    return found
