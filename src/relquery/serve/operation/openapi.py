"""The OpenAPI document: what FastAPI knows of the routes, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

Json = dict[str, Any]

OPEN = ("/health", "/health/live", "/health/ready")
"""Paths that need no key."""
_KEYS: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `relquery keys`"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_NEVER_GIVEN = ("HTTPValidationError", "ValidationError")
_REQUEST_ID: Json = {
    "x-request-id": {
        "required": True,
        "description": "The request's id, which the server's log has too",
        "schema": {"type": "string"},
    }
}


class Documented(FastAPI):
    """An application whose document says what its clients get.

    needs_keys: whether they must send a key.
    """

    needs_keys = False

    def openapi(self) -> Json:
        """The document."""
        if self.openapi_schema is None:
            found = get_openapi(
                title=self.title,
                version=self.version,
                summary=self.summary,
                routes=self.routes,
            )
            self.openapi_schema = _corrected(found, needs_keys=self.needs_keys)
        return self.openapi_schema


def _corrected(document: Json, *, needs_keys: bool) -> Json:
    parts = document["components"]
    for name in _NEVER_GIVEN:
        parts["schemas"].pop(name, None)
    for path, operation in _operations(document):
        _correct_answers(operation["responses"], has_keys=needs_keys and path not in OPEN)
        _lift_parts(operation, parts["schemas"])
        _correct_form(operation, parts["schemas"])
        if needs_keys and path not in OPEN:
            operation["security"] = [{name: []} for name in _KEYS]
    if needs_keys:
        parts["securitySchemes"] = _KEYS
    return document


def _correct_answers(answers: Json, *, has_keys: bool) -> None:
    """Wrong bodies are answered 400, not 422 as FastAPI has it; every answer has its id."""
    wrong = answers.get("422", {}).get("content", {}).get("application/json", {})
    if wrong.get("schema", {}).get("$ref", "").endswith(_NEVER_GIVEN):
        del answers["422"]
    if not has_keys:
        answers.pop("401", None)
    for answer in answers.values():
        answer["headers"] = answer.get("headers", {}) | _REQUEST_ID


def _lift_parts(operation: Json, schemas: Json) -> None:
    """What a body is made of stands with all other parts of the document."""
    for form in operation.get("requestBody", {}).get("content", {}).values():
        for name, part in form["schema"].pop("$defs", {}).items():
            schemas.setdefault(name, part)


def _correct_form(operation: Json, schemas: Json) -> None:
    """A form has no other fields."""
    content = operation.get("requestBody", {}).get("content", {})
    form = content.get("multipart/form-data", {}).get("schema", {})
    form = schemas.get(form.get("$ref", "").rpartition("/")[2], form)
    if form:
        form["additionalProperties"] = False


def _operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            yield path, operation
