"""The OpenAPI document: what FastAPI knows of the routes, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

Json = dict[str, Any]
Responses = dict[int | str, Json]

OPEN = ("/health", "/health/live", "/health/ready")
"""Paths that need no key."""
_PARTS = "#/components/schemas/"
_KEYS: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `relquery keys`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
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
    507: "The disk is full",
}
_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    422: {"x-relquery-estimate": "Seconds until the last answer would come"},
    429: {"Retry-After": "Seconds after which to ask again"},
    503: {"Retry-After": "Seconds after which to ask again"},
}
_ID = {"x-request-id": "The request's id, which the server's log has too"}
_TEXT, _MAYBE = {"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}


def _object(**fields: Json) -> Json:
    return {"type": "object", "properties": fields, "required": list(fields)}


FORMS = {
    "OpenAIError": _object(error=_object(message=_TEXT, type=_TEXT, param=_MAYBE, code=_MAYBE)),
    "AnthropicError": _object(
        type=_TEXT, error=_object(type=_TEXT, message=_TEXT), request_id=_MAYBE
    ),
    # What is told here of two forms of the SDKs, which take long to read.
    "OpenAIResponse": _object(
        id=_TEXT,
        object={"const": "response"},
        created_at={"type": "integer"},
        status={"enum": ["completed", "incomplete"]},
        model=_TEXT,
        output={"type": "array", "items": {"type": "object"}},
        usage={"type": "object"},
    ),
    "AnthropicMessage": _object(
        id=_TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        model=_TEXT,
        content={"type": "array", "items": {"type": "object"}},
        stop_reason=_TEXT,
        stop_sequence=_MAYBE,
        usage={"type": "object"},
    ),
    "TokenCount": _object(input_tokens={"type": "integer"}),
    "AnthropicMessageBatch": _object(
        id=_TEXT,
        type={"const": "message_batch"},
        processing_status={"enum": ["in_progress", "canceling", "ended"]},
        request_counts={"type": "object"},
        created_at=_TEXT,
        expires_at=_TEXT,
        ended_at=_MAYBE,
        results_url=_MAYBE,
    ),
    "AnthropicDeleted": _object(id=_TEXT, type=_TEXT),
}
"""The bodies of errors, and of some answers."""


def errors(*statuses: int, form: str = "OpenAIError") -> Responses:
    """For `responses=` of a route: these and those that every route may give. form: of FORMS, or
    several of them, with commas."""
    content = {"application/json": {"schema": _form(form)}}
    every = sorted({*statuses, 400, 401, 403, 408, 413, 429, 503})
    return {
        status: {
            "description": _WORDS[status],
            "content": content,
            "headers": _headers(_HEADERS.get(status, {})),
        }
        for status in every
    }


def _form(names: str) -> Json:
    some: list[Json] = [{"$ref": _PARTS + each} for each in names.split(",")]
    return some[0] if len(some) == 1 else {"anyOf": some}


def answers(form: str, description: str = "The answer", *, listed: bool = False) -> Responses:
    """For `responses=` of a route: a form of the SDKs, one of several, or a list of it."""
    schema = _form(form)
    if listed:
        kind = {} if form.startswith("Anthropic") else {"object": {"const": "list"}}
        schema = _object(**kind, data={"type": "array", "items": schema})
    return {200: {"description": description, "content": {"application/json": {"schema": schema}}}}


def streamed(form: str) -> Responses:
    """For `responses=` of a route whose answers are whole, or events."""
    found = answers(form, "The answers; with stream = true as server-sent events")
    found[200]["content"]["text/event-stream"] = {}
    return found


def standalone(model: type[BaseModel]) -> Json:
    """The JSON Schema of a body that a route reads by itself: what it refers to is written out."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            return whole(parts[name]) if name in parts else {k: whole(v) for k, v in value.items()}
        return [whole(each) for each in value] if isinstance(value, list) else value

    found: Json = whole(schema)
    return found


class Documented(FastAPI):
    """An application whose document says what its clients get.

    needs_keys: whether they must send a key.
    """

    needs_keys = False

    def openapi(self) -> Json:
        """The document."""
        if self.openapi_schema is None:
            found = get_openapi(
                title=self.title, version=self.version, summary=self.summary, routes=self.routes
            )
            self.openapi_schema = _corrected(found, needs_keys=self.needs_keys)
        return self.openapi_schema


@cache
def _sdk() -> Json:
    """The forms of OpenAI's SDK, which takes time to import: only the document needs them."""
    from openai.types import (
        Batch,
        Completion,
        CreateEmbeddingResponse,
        FileDeleted,
        FileObject,
        Model,
    )
    from openai.types.chat import ChatCompletion

    kinds: list[Any] = [Batch, Completion, CreateEmbeddingResponse, FileDeleted, FileObject, Model]
    kinds.append(ChatCompletion)
    given = [(kind, "serialization") for kind in kinds]
    # Its names begin with that of the API: bodies of ours have some of them, too.
    found = models_json_schema(given, ref_template=_PARTS + "OpenAI{model}")[1]["$defs"]  # type: ignore[arg-type]
    for name in ("token_logprobs", "top_logprobs"):  # the first token of an echo has none
        for listed in found["Logprobs"]["properties"][name]["anyOf"]:
            if "items" in listed:
                listed["items"] = {"anyOf": [listed["items"], {"type": "null"}]}
    return {f"OpenAI{name}": each for name, each in found.items()}


def _corrected(document: Json, *, needs_keys: bool) -> Json:
    parts: Json = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        parts.pop(name, None)
    for name, part in (FORMS | _sdk()).items():
        parts.setdefault(name, part)
    for path, operation in _operations(document):
        has_keys = needs_keys and path not in OPEN
        _correct_answers(operation["responses"], has_keys=has_keys)
        _correct_bodies(operation.get("requestBody", {}).get("content", {}), parts)
        if has_keys:
            operation["security"] = [{name: []} for name in _KEYS]
    if needs_keys:
        document["components"]["securitySchemes"] = _KEYS
    return document


def _correct_answers(answers: Json, *, has_keys: bool) -> None:
    """Wrong bodies are answered 400, not 422 as FastAPI has it; every answer has its id."""
    wrong = answers.get("422", {}).get("content", {}).get("application/json", {})
    if wrong.get("schema", {}).get("$ref", "").endswith("HTTPValidationError"):
        del answers["422"]
    if not has_keys:
        answers.pop("401", None)
    for answer in answers.values():
        answer["headers"] = answer.get("headers", {}) | _headers(_ID)


def _correct_bodies(content: Json, schemas: Json) -> None:
    """What a body is made of stands with all other parts; a form has no other fields."""
    for kind, form in content.items():
        for name, part in form["schema"].pop("$defs", {}).items():
            schemas.setdefault(name, part)
        if kind == "multipart/form-data":
            schema = form["schema"]
            named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
            named["additionalProperties"] = False


def _headers(said: dict[str, str]) -> Json:
    return {
        name: {"required": True, "description": each, "schema": _TEXT}
        for name, each in said.items()
    }


def _operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            yield path, operation
