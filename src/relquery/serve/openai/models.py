"""/v1/models, in the form of OpenAI's API, or of Anthropic's for those who send its header."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relquery.serve.document import answers, errors
from relquery.serve.errors import HttpError, Json, is_anthropic
from relquery.serve.server import Scope, Server

router = APIRouter(tags=["OpenAI", "Anthropic"])
ERRORS = errors(404, form="OpenAIError,AnthropicError")
Cursor = Annotated[str | None, Query(description="A model's name; of Anthropic's form")]


@router.get("/v1/models", responses=ERRORS | answers("OpenAIModel", "The models", listed=True))
async def list_models(
    request: Request,
    scope: Scope,
    limit: Annotated[int, Query(ge=1, le=1000, description="Of Anthropic's form")] = 20,
    after_id: Cursor = None,
    before_id: Cursor = None,
) -> Response:
    """All names by which the model can be called. With the header `anthropic-version`, a page of
    them in Anthropic's form."""
    names = list(scope.server.models)
    if not is_anthropic(request.scope):
        return Json({"object": "list", "data": [_model(each, scope.server) for each in names]})
    names, has_more = _page(names, limit, after_id, before_id)
    data = [_info(each, scope.server) for each in names]
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return Json({"data": data, **ends, "has_more": has_more})


@router.get("/v1/models/{name:path}", responses=ERRORS | answers("OpenAIModel", "The model"))
async def get_model(name: str, request: Request, scope: Scope) -> Response:
    """One model. With the header `anthropic-version`, in Anthropic's form."""
    scope.server.adapter(name)
    return Json((_info if is_anthropic(request.scope) else _model)(name, scope.server))


def _page(
    names: list[str], limit: int, after: str | None, before: str | None
) -> tuple[list[str], bool]:
    """(some names, whether more follow in the direction of the page). Raises HttpError."""
    if before is None:
        left = names if after is None else names[_place(after, names, "after_id") + 1 :]
        return left[:limit], len(left) > limit
    if after is not None:
        raise HttpError(400, "Give after_id or before_id, not both.", "invalid_value", "before_id")
    left = names[: _place(before, names, "before_id")]
    return left[-limit:], len(left) > limit


def _place(name: str, names: list[str], param: str) -> int:
    if name not in names:
        raise HttpError(400, f"{param}: there is no '{name}' in this list.", "invalid_value", param)
    return names.index(name)


def _model(name: str, server: Server) -> dict[str, Any]:
    """max_model_len: tokens of a prompt and its answer together, as in vLLM."""
    about = {"created": server.began, "owned_by": "relquery"}
    return {"id": name, "object": "model", **about, "max_model_len": server.facts.context}


def _info(name: str, server: Server) -> dict[str, Any]:
    """max_input_tokens leaves room for one token."""
    created = datetime.fromtimestamp(server.began, UTC)
    return {
        "id": name,
        "type": "model",
        "display_name": name,
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": server.facts.context - 1,
        "max_tokens": server.facts.context,
    }
