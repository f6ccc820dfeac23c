"""What the lines of a batch may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from relquery.serve.body import invalid
from relquery.serve.errors import HttpError, as_http
from relquery.serve.server import Server
from relquery.serve.wire.openai.chat import ChatBody, read_chat
from relquery.serve.wire.openai.choices import Question, Read
from relquery.serve.wire.openai.completions import CompletionBody, read_completion
from relquery.serve.wire.openai.responses.asked import ResponseBody
from relquery.serve.wire.openai.responses.route import read_response


class Endpoint(NamedTuple):
    """A route's body, and what it asks for."""

    body: type[BaseModel]
    read: Read


ENDPOINTS: Mapping[str, Endpoint] = {
    "/v1/chat/completions": Endpoint(ChatBody, read_chat),
    "/v1/completions": Endpoint(CompletionBody, read_completion),
    "/v1/responses": Endpoint(ResponseBody, read_response),
}


def read_body(endpoint: str, given: Any, server: Server) -> Question | HttpError:
    """What a line's body asks for, or why it cannot be asked."""
    body, read = ENDPOINTS[endpoint]
    try:
        found = body.model_validate(given)
        if getattr(found, "stream", None):
            return HttpError(400, "A batch cannot be streamed.", "unsupported", "stream")
        return read(found, server)
    except ValidationError as error:
        return invalid(error.errors())
    except Exception as error:
        return as_http(error)
