"""/v1/batches"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from relquery.serve.asked import Caller
from relquery.serve.body import NOTHING, Body
from relquery.serve.documented import errors
from relquery.serve.wire.openai.batches.file_routes import batches_of, find_file
from relquery.serve.wire.openai.batches.record import Record
from relquery.serve.wire.openai.batches.types import After, BatchList, BatchObject, page_of

router = APIRouter(tags=["OpenAI"])


class BatchBody(Body):
    """A request for a batch over an uploaded file."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"output_expires_after": NOTHING}
    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None


@router.post("/v1/batches", responses=errors(404))
async def create_batch(body: BatchBody, request: Request) -> BatchObject:
    """Answer all requests of a file."""
    file = find_file(request, body.input_file_id)
    key = Caller(request).asker.name
    return _shown(await batches_of(request).create(file, body.endpoint, body.metadata, key))


@router.get("/v1/batches", responses=errors())
async def list_batches(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: After = None,
) -> BatchList:
    """The batches, the latest first."""
    found = batches_of(request).of(Caller(request).asker.tenant)
    known = {each.id: each for each in reversed(found)}
    page, has_more = page_of(list(known), after, limit)
    return BatchList(
        data=[_shown(known[name]) for name in page],
        first_id=page[0] if page else None,
        last_id=page[-1] if page else None,
        has_more=has_more,
    )


@router.get("/v1/batches/{batch_id}", responses=errors(404))
async def get_batch(batch_id: str, request: Request) -> BatchObject:
    """How far a batch is."""
    return _shown(_find(request, batch_id))


@router.post("/v1/batches/{batch_id}/cancel", responses=errors(404, 409))
async def cancel_batch(batch_id: str, request: Request) -> BatchObject:
    """End a batch; the answers that it has are kept."""
    record = _find(request, batch_id)
    await batches_of(request).cancel(record)
    return _shown(record)


def _find(request: Request, name: str) -> Record:
    return batches_of(request).find(name, Caller(request).asker.tenant)


def _shown(record: Record) -> BatchObject:
    return BatchObject.model_validate(record.shown())
