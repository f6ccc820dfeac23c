"""The route of responses."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.answering import whole
from relquery.serve.asked import Caller
from relquery.serve.documented import errors, streamed
from relquery.serve.errors import Ascii
from relquery.serve.server import Server
from relquery.serve.wire.openai.choices import Question
from relquery.serve.wire.openai.responses.asked import ResponseBody
from relquery.serve.wire.openai.responses.form import ResponseForm
from relquery.serve.wire.openai.types import ResponseObject

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/responses", responses=errors(404, 422, 504) | streamed(ResponseObject))
async def respond(body: ResponseBody, request: Request) -> Response:
    """Answer an input."""
    caller = Caller(request)
    question = read_response(body, caller.server)
    flow = caller.start(question.groups, streamed=bool(body.stream), declared=body.relquery)
    if body.stream:
        return question.form.stream(flow)
    return Ascii(await question.form.whole(await whole(request, flow)))


def read_response(body: ResponseBody, server: Server) -> Question:
    """What an input asks for. Raises HttpError."""
    server.check_model(body.model)
    return Question([([body.prompt], body.sampling(server))], [0], ResponseForm(body))
