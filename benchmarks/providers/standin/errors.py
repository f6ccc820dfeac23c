"""Requests that are refused, in the words of the provider."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.providers.standin.http import Request, Response
from benchmarks.providers.standin.rules import Provider

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
"""Of Anthropic, by status."""


class Refused(Exception):  # noqa: N818 - no failure of this program
    """A request that gets an error. code, param: as OpenAI names them."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = headers or {}

    def reply(self, provider: Provider) -> Response:
        """The error as a reply."""
        return Response(self.body(provider), self.status, self.headers)

    def body(self, provider: Provider) -> dict[str, Any]:
        """The error in the provider's form."""
        if provider == "anthropic":
            error: dict[str, Any] = {"type": _KINDS[self.status], "message": self.message}
            return {"type": "error", "error": error, "request_id": "req_1"}
        kind = "requests" if self.status == 429 else "invalid_request_error"
        if self.status >= 500:
            kind = "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def provider_of(request: Request) -> Provider:
    """Whose client sent a request."""
    return "anthropic" if "x-api-key" in request.headers else "openai"


class Strict(BaseModel):
    """A part of a request: unknown fields and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Form = TypeVar("Form", bound=Strict)


def parse(form: type[Form], body: bytes, provider: Provider) -> Form:
    """The request in a body. Raises Refused in the provider's words."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if provider == "anthropic":
        extra = "Extra inputs are not permitted"
        said = extra if first["type"] == "extra_forbidden" else first["msg"]
        raise Refused(400, f"{where}: {said}")
    if first["type"] == "extra_forbidden":
        raise Refused(400, f"Unknown parameter: '{where}'.", "unknown_parameter", where)
    if first["type"] == "missing":
        missing = f"Missing required parameter: '{where}'."
        raise Refused(400, missing, "missing_required_parameter", where)
    raise Refused(400, f"Invalid value for '{where}': {first['msg']}.", "invalid_value", where)
