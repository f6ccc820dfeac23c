"""Which requests are refused, in the words of the provider, and faults on purpose."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, get_args

from pydantic import ConfigDict, Field, ValidationError, conlist, create_model

from benchmarks.standin.http import Json, Request, Response
from benchmarks.standin.prompt import Sent
from benchmarks.standin.rules import Provider

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
"""Of Anthropic, by status."""


class Refused(Exception):  # noqa: N818 - no failure of this program
    """A request that gets an error.

    code, param: as OpenAI names them. headers: with `_` for `-`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def reply(self, provider: Provider) -> Response:
        """The error as a reply."""
        return Response(self.body(provider), self.status, self.headers)

    def body(self, provider: Provider) -> Json:
        """The error in the provider's form."""
        if provider == "anthropic":
            kind = _KINDS.get(self.status, "invalid_request_error")
            error: Json = {"type": kind, "message": self.message}
            return {"type": "error", "error": error, "request_id": "req_1"}
        kind = "requests" if self.status == 429 else "invalid_request_error"
        if self.status >= 500:
            kind = "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def provider_of(request: Request) -> Provider:
    """Whose client sent a request."""
    return "anthropic" if "x-api-key" in request.headers else "openai"


def strict(**fields: Any) -> Any:
    """The form of a part of a request, which has no other fields and no other types.

    Fields that may be None may be left out.
    """
    body = {
        f"{name}_": (of, Field(None if NoneType in get_args(of) else ..., alias=name))
        for name, of in fields.items()
    }
    config = ConfigDict(extra="forbid", strict=True)
    form: Any = create_model("Form", __config__=config, **body)  # type: ignore[call-overload]
    return form


def many(form: Any, most: int | None = None) -> Any:
    """The form of a list that is not empty."""
    return conlist(form, min_length=1, max_length=most)


def parse(form: Any, body: bytes, provider: Provider) -> Json:
    """The request in a body. Raises Refused in the provider's words."""
    try:
        form.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    else:
        read: Json = json.loads(body)
        return read
    where, kind, said = ".".join(map(str, first["loc"])), first["type"], first["msg"]
    if provider == "anthropic":
        said = "Extra inputs are not permitted" if kind == "extra_forbidden" else said
        raise Refused(400, f"{where}: {said}")
    said, code = {
        "extra_forbidden": (f"Unknown parameter: '{where}'.", "unknown_parameter"),
        "missing": (f"Missing required parameter: '{where}'.", "missing_required_parameter"),
    }.get(kind, (f"Invalid value for '{where}': {said}.", "invalid_value"))
    raise Refused(400, said, code, where)


Kind = Literal["429", "500", "503", "hang", "reset", "cut", "garbage", "refusal", "wrong types"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""429, 500, 503: the status. hang: no reply. reset: the connection is reset. cut: the reply ends in
the middle. garbage: 200 with something that is not JSON. refusal: the model declines. wrong types:
JSON whose fields have other types than documented."""


@dataclass(slots=True)
class Faults:
    """Requests whose prompts hash below a share fail, the first times that they come."""

    kind: Kind | None = None
    share: float = 1.0
    times: int | None = None
    """How often a request fails; None for always."""
    _seen: Counter[int] = field(default_factory=Counter)

    def of(self, sent: Sent) -> Kind | None:
        """The fault that a request gets, counted as given."""
        digest = sent.digest
        if self.kind is None or digest >= self.share * 2**64:
            return None
        self._seen[digest] += 1
        return self.kind if self.times is None or self._seen[digest] <= self.times else None
