"""/v1/models, in the form of OpenAI's API, or of Anthropic's for those who send its header."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.document import answers, errors
from relquery.serve.errors import Json, is_anthropic
from relquery.serve.pages import Cursor, Limit, anthropic_page
from relquery.serve.server import Scope, Server
from relquery.serve.values import instant

router = APIRouter(tags=["OpenAI", "Anthropic"])
ERRORS = errors(404, form="OpenAIError,AnthropicError")


@router.get("/v1/models", responses=ERRORS | answers("OpenAIModel", "The models", listed=True))
async def list_models(
    request: Request,
    scope: Scope,
    limit: Limit = 20,
    after_id: Cursor = None,
    before_id: Cursor = None,
) -> Response:
    """All names by which models can be called. With the header `anthropic-version`, a page of them
    in Anthropic's form."""
    names, server = scope.server.models, scope.server
    if not is_anthropic(request.scope):
        return Json({"object": "list", "data": [_model(each, server) for each in names]})
    known = {each: _info(each, server) for each in names}
    return Json(anthropic_page(known, limit, after_id, before_id))


@router.get("/v1/models/{name:path}", responses=ERRORS | answers("OpenAIModel", "The model"))
async def get_model(name: str, request: Request, scope: Scope) -> Response:
    """One model. With the header `anthropic-version`, in Anthropic's form."""
    return Json((_info if is_anthropic(request.scope) else _model)(name, scope.server))


def _model(name: str, server: Server) -> dict[str, Any]:
    """max_model_len: tokens of a prompt and its answer together, as in vLLM. Raises HttpError."""
    about = {"created": server.began, "owned_by": "relquery"}
    context = server.model(name).facts.context
    return {"id": name, "object": "model", **about, "max_model_len": context}


def _info(name: str, server: Server) -> dict[str, Any]:
    """max_input_tokens leaves room for one token. Raises HttpError."""
    context = server.model(name).facts.context
    return {
        "id": name,
        "type": "model",
        "display_name": name,
        "created_at": instant(server.began),
        "lifecycle": "active",
        "max_input_tokens": context - 1,
        "max_tokens": context,
    }
