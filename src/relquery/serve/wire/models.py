"""/v1/models, in the form of OpenAI's API, or of Anthropic's for those who send its header."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request

from relquery.serve.asked import Caller
from relquery.serve.documented import AnthropicError, OpenAIError, errors
from relquery.serve.errors import HttpError, is_anthropic
from relquery.serve.server import Server
from relquery.serve.wire.anthropic.documented import ModelInfo, ModelPage
from relquery.serve.wire.openai.types import ModelList, ModelObject

router = APIRouter(tags=["OpenAI", "Anthropic"])
EITHER = OpenAIError | AnthropicError
Cursor = Annotated[str | None, Query(description="A model's name; of Anthropic's form")]


@router.get("/v1/models", responses=errors(model=EITHER))
async def list_models(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Of Anthropic's form")] = 20,
    after_id: Cursor = None,
    before_id: Cursor = None,
) -> ModelList | ModelPage:
    """All names by which the model can be called. With the header `anthropic-version`, a page of
    them in Anthropic's form."""
    server = Caller(request).server
    if not is_anthropic(request.scope):
        return ModelList(data=[_object(name, server) for name in server.models])
    names, has_more = _page(list(server.models), limit, after_id, before_id)
    return ModelPage(
        data=[_info(name, server) for name in names],
        first_id=names[0] if names else None,
        last_id=names[-1] if names else None,
        has_more=has_more,
    )


@router.get("/v1/models/{name:path}", responses=errors(404, model=EITHER))
async def get_model(name: str, request: Request) -> ModelObject | ModelInfo:
    """One model. With the header `anthropic-version`, in Anthropic's form."""
    server = Caller(request).server
    server.check_model(name)
    return (_info if is_anthropic(request.scope) else _object)(name, server)


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


def _object(name: str, server: Server) -> ModelObject:
    return ModelObject(id=name, created=server.began, max_model_len=server.facts.context)


def _info(name: str, server: Server) -> ModelInfo:
    return ModelInfo(
        id=name,
        display_name=name,
        created_at=datetime.fromtimestamp(server.began, UTC),
        max_input_tokens=server.facts.context - 1,
        max_tokens=server.facts.context,
    )
