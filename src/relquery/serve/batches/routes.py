"""/v1/files and /v1/batches: files of requests that are answered in their own time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import Field
from starlette.responses import FileResponse, Response

from relquery.serve.batches.batches import Batches
from relquery.serve.body import NOTHING, Body
from relquery.serve.document import Responses, answers, errors
from relquery.serve.errors import HttpError, Json, is_anthropic, not_supported
from relquery.serve.pages import After, Cursor, anthropic_page, openai_page
from relquery.serve.server import RequestScope, Scope
from relquery.serve.store import StoredFile
from relquery.serve.values import instant

router = APIRouter(tags=["OpenAI"])
MOST_NAME = 255
_PAGE = "page_"
ERRORS = "OpenAIError,AnthropicError"
_FILE, _BATCH = answers("OpenAIFileObject", "The file"), answers("OpenAIBatch", "The batch")
_CONTENT: Responses = {
    200: {
        "description": "The content",
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
    }
}


@router.post("/v1/files", responses=errors(507, form=ERRORS) | _FILE)
async def upload_file(
    request: Request,
    scope: Scope,
    file: UploadFile,
    purpose: Annotated[Literal["batch"], Form()] = "batch",
) -> Response:
    """Keep a file for a batch. With the header `anthropic-version`, all routes of files answer in
    the form of Anthropic's Files API."""
    for name in await request.form():
        if name not in ("file", "purpose"):
            raise not_supported(name)
    files, given = _batches(scope).files, file.content_type or ""
    name = (file.filename or "upload")[:MOST_NAME]
    found = await files.upload(file.file, name, purpose, scope.tenant, given)
    return Json(_file(found, request))


@router.get(
    "/v1/files",
    responses=errors(form=ERRORS) | answers("OpenAIFileObject", "The files", listed=True),
)
async def list_files(
    request: Request,
    scope: Scope,
    purpose: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    after: After = None,
    after_id: Cursor = None,
    before_id: Cursor = None,
    page: Cursor = None,
) -> Response:
    """The files, the latest first. `page` is the `next_page` of an answer in Anthropic's form."""
    files = _batches(scope).files.listed(scope.tenant)
    known = {each.id: _file(each, request) for each in files if purpose in (None, each.purpose)}
    known = known if order == "asc" else dict(reversed(known.items()))
    if is_anthropic(request.scope):
        after_id = after_id if page is None else page.removeprefix(_PAGE)
        found = anthropic_page(known, limit, after_id, before_id)
        return Json(
            found | {"next_page": f"{_PAGE}{found['last_id']}" if found["has_more"] else None}
        )
    return Json(openai_page(known, after, limit))


@router.get("/v1/files/{file_id}", responses=errors(404, form=ERRORS) | _FILE)
async def get_file(file_id: str, request: Request, scope: Scope) -> Response:
    """What is known of a file."""
    return Json(_file(_batches(scope).files.find(file_id, scope.tenant), request))


@router.get(
    "/v1/files/{file_id}/content",
    responses=errors(404, form=ERRORS) | _CONTENT,
    response_class=Response,
)
async def get_content(file_id: str, scope: Scope) -> Response:
    """The content of a file."""
    files = _batches(scope).files
    path = files.path(files.find(file_id, scope.tenant).id)
    return FileResponse(path, media_type="application/octet-stream")


@router.delete(
    "/v1/files/{file_id}",
    responses=errors(404, 409, form=ERRORS) | answers("OpenAIFileDeleted", "It is deleted"),
)
async def delete_file(file_id: str, request: Request, scope: Scope) -> Response:
    """Remove a file."""
    batches = _batches(scope)
    file = batches.files.find(file_id, scope.tenant)
    if batches.reads(file):
        raise HttpError(
            409, "A batch reads this file. Cancel it, or wait until it has ended.", "conflict"
        )
    await batches.files.delete(file.id)
    if is_anthropic(request.scope):
        return Json({"id": file.id, "type": "file_deleted"})
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
    key = scope.identity.name
    record = await batches.create(file, body.endpoint, metadata=body.metadata, key=key)
    return Json(record.shown())


@router.get("/v1/batches", responses=errors() | answers("OpenAIBatch", "The batches", listed=True))
async def list_batches(
    scope: Scope,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: After = None,
) -> Response:
    """The batches, the latest first."""
    found = reversed(_batches(scope).of(scope.tenant))
    return Json(openai_page({each.id: each.shown() for each in found}, after, limit))


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


def _file(file: StoredFile, request: Request) -> dict[str, Any]:
    """A file as clients see it."""
    if is_anthropic(request.scope):
        return {
            "id": file.id,
            "type": "file",
            "filename": file.filename,
            "mime_type": file.mime_type or "application/octet-stream",
            "size_bytes": file.bytes,
            "created_at": instant(file.created_at),
            "downloadable": True,
        }
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
