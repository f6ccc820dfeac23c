"""/v1/models, in the form of OpenAI's API, or of Anthropic's for those who send its header; and
pages of lists, as both APIs have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relquery.serve.errors import Json, bad_request, is_anthropic
from relquery.serve.server import Scope, Server
from relquery.serve.values import instant

router = APIRouter(tags=["OpenAI", "Anthropic"])
After = Annotated[str | None, Query(description="The id before the page's first one")]
Cursor = Annotated[str | None, Query(description="An id of the list; of Anthropic's form")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Of Anthropic's form")]


def openai_page(
    known: Mapping[str, dict[str, Any]], after: str | None, limit: int
) -> dict[str, Any]:
    """Some of a list, in its order. known: by id. Raises HttpError for an unknown `after`."""
    ids = list(known)
    start = 0 if after is None else _place(after, ids, "after") + 1
    page, has_more = ids[start : start + limit], start + limit < len(ids)
    return {"object": "list", **_shown(known, page), "has_more": has_more}


def anthropic_page(
    known: Mapping[str, dict[str, Any]], limit: int, after: str | None, before: str | None
) -> dict[str, Any]:
    """The same in Anthropic's form: `has_more` is in the direction of the page."""
    ids = list(known)
    if after is not None and before is not None:
        raise bad_request("Give after_id or before_id, not both.", "before_id", "invalid_value")
    if before is not None:
        left = ids[: _place(before, ids, "before_id")]
        page = left[-limit:]
    else:
        left = ids if after is None else ids[_place(after, ids, "after_id") + 1 :]
        page = left[:limit]
    return _shown(known, page) | {"has_more": len(left) > limit}


def _shown(known: Mapping[str, dict[str, Any]], page: list[str]) -> dict[str, Any]:
    return {
        "data": [known[name] for name in page],
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _place(name: str, ids: list[str], param: str) -> int:
    if name not in ids:
        raise bad_request(f"{param}: there is no '{name}' in this list.", param, "invalid_value")
    return ids.index(name)


@router.get("/v1/models")
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


@router.get("/v1/models/{name:path}")
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
