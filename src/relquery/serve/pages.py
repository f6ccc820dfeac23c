"""Pages of lists, as OpenAI's and Anthropic's APIs have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query

from relquery.serve.errors import bad_request

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
