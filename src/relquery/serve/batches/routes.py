"""/v1/files and /v1/batches: files of requests that are answered in their own time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import Field
from starlette.responses import FileResponse, Response

from relquery.serve.batches.batches import Batches
from relquery.serve.batches.store import StoredFile
from relquery.serve.body import NOTHING, Body
from relquery.serve.document import Responses, answers, errors
from relquery.serve.errors import HttpError, Json, not_supported
from relquery.serve.server import RequestScope, Scope

router = APIRouter(tags=["OpenAI"])
MOST_NAME = 255
After = Annotated[str | None, Query(description="The id before the page's first one")]
_FILE, _BATCH = answers("OpenAIFileObject", "The file"), answers("OpenAIBatch", "The batch")
_CONTENT: Responses = {
    200: {
        "description": "The content",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    }
}


@router.post("/v1/files", responses=errors(507) | _FILE)
async def upload_file(
    request: Request,
    scope: Scope,
    file: UploadFile,
    purpose: Annotated[Literal["batch"], Form()],
) -> Response:
    """Keep a file for a batch."""
    for name in await request.form():
        if name not in ("file", "purpose"):
            raise not_supported(name)
    filename = (file.filename or "upload")[:MOST_NAME]
    files = _batches(scope).files
    return Json(_file(await files.upload(file.file, filename, purpose, scope.tenant)))


@router.get("/v1/files", responses=errors() | answers("OpenAIFileObject", "The files", listed=True))
async def list_files(
    scope: Scope,
    purpose: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    after: After = None,
) -> Response:
    """The files, the latest first."""
    found = _batches(scope).files.of(scope.tenant)
    known = {each.id: _file(each) for each in found if purpose in (None, each.purpose)}
    return _page(known if order == "asc" else dict(reversed(known.items())), after, limit)


@router.get("/v1/files/{file_id}", responses=errors(404) | _FILE)
async def get_file(file_id: str, scope: Scope) -> Response:
    """What is known of a file."""
    return Json(_file(_batches(scope).files.find(file_id, scope.tenant)))


@router.get(
    "/v1/files/{file_id}/content", responses=errors(404) | _CONTENT, response_class=Response
)
async def get_content(file_id: str, scope: Scope) -> Response:
    """The content of a file."""
    files = _batches(scope).files
    path = files.path(files.find(file_id, scope.tenant).id)
    return FileResponse(path, media_type="application/octet-stream")


@router.delete(
    "/v1/files/{file_id}",
    responses=errors(404, 409) | answers("OpenAIFileDeleted", "It is deleted"),
)
async def delete_file(file_id: str, scope: Scope) -> Response:
    """Remove a file."""
    batches = _batches(scope)
    file = batches.files.find(file_id, scope.tenant)
    if batches.reads(file):
        raise HttpError(
            409, "A batch reads this file. Cancel it, or wait until it has ended.", "conflict"
        )
    await batches.files.delete(file)
    return Json({"id": file.id, "object": "file", "deleted": True})


class BatchBody(Body):
    """A request for a batch over an uploaded file."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"output_expires_after": NOTHING}
    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None


@router.post("/v1/batches", responses=errors(404, 507) | _BATCH)
async def create_batch(body: BatchBody, scope: Scope) -> Response:
    """Answer all requests of a file."""
    batches = _batches(scope)
    file = batches.files.find(body.input_file_id, scope.tenant)
    record = await batches.create(file, body.endpoint, body.metadata, scope.identity.name)
    return Json(record.shown())


@router.get("/v1/batches", responses=errors() | answers("OpenAIBatch", "The batches", listed=True))
async def list_batches(
    scope: Scope,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: After = None,
) -> Response:
    """The batches, the latest first."""
    found = reversed(_batches(scope).of(scope.tenant))
    return _page({each.id: each.shown() for each in found}, after, limit)


@router.get("/v1/batches/{batch_id}", responses=errors(404) | _BATCH)
async def get_batch(batch_id: str, scope: Scope) -> Response:
    """How far a batch is."""
    return Json(_batches(scope).find(batch_id, scope.tenant).shown())


@router.post("/v1/batches/{batch_id}/cancel", responses=errors(404, 409) | _BATCH)
async def cancel_batch(batch_id: str, scope: Scope) -> Response:
    """End a batch; the answers that it has are kept."""
    record = _batches(scope).find(batch_id, scope.tenant)
    await _batches(scope).cancel(record)
    return Json(record.shown())


def _batches(scope: RequestScope) -> Batches:
    return scope.server.kept(Batches)


def _file(file: StoredFile) -> dict[str, Any]:
    """A file as clients see it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def _page(known: Mapping[str, dict[str, Any]], after: str | None, limit: int) -> Response:
    """Some of a list, in its order. Raises HttpError for an unknown `after`."""
    ids, start = list(known), 0
    if after is not None:
        if after not in known:
            raise HttpError(400, f"There is no '{after}' in this list.", "invalid_value", "after")
        start = ids.index(after) + 1
    page = ids[start : start + limit]
    return Json(
        {
            "object": "list",
            "data": [known[name] for name in page],
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
            "has_more": start + limit < len(ids),
        }
    )
