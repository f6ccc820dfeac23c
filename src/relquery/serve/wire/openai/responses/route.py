"""The route of responses."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.documented import errors, streamed
from relquery.serve.server import Asked, Server
from relquery.serve.wire.openai.choices import Question, answered
from relquery.serve.wire.openai.responses.asked import ResponseBody
from relquery.serve.wire.openai.responses.form import ResponseForm
from relquery.serve.wire.openai.types import ResponseObject

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/responses", responses=errors(404, 422, 504) | streamed(ResponseObject))
async def respond(body: ResponseBody, request: Request) -> Response:
    """Answer an input."""
    return await answered(read_response(body, request.state.server), body, request)


def read_response(body: ResponseBody, server: Server) -> Question:
    """What an input asks for. Raises HttpError."""
    adapter = server.check_model(body.model)
    asked = Asked([body.prompt], body.sampling(server), adapter)
    return Question([asked], [0], ResponseForm(body))
