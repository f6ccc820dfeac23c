"""/v1/files, /v1/batches and /v1/messages/batches: requests that are answered in their own time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, Response, StreamingResponse

from relquery.serve import bodies
from relquery.serve.batches.batches import MESSAGES, BatchRecord, ServerBatches
from relquery.serve.batches.lines import read_lines
from relquery.serve.batches.store import HIDDEN, Files, StoredFile
from relquery.serve.errors import HttpError, Json, anthropic_body, bad_request, is_anthropic
from relquery.serve.server import RequestScope, Scope
from relquery.serve.streaming import line

_TIMES = ["in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"]
_COUNTS = ("total", "completed", "failed")
router = APIRouter(tags=["OpenAI"])
message_router = APIRouter(tags=["Anthropic"], prefix="/v1/messages/batches")
MOST_NAME = 255
_PAGE = "page_"
DAY = 86_400
"""Seconds after which a batch of Anthropic's expires. Those of this server do not."""


class UploadForm(BaseModel):
    """A file for a batch."""

    model_config = ConfigDict(extra="forbid")
    file: UploadFile
    purpose: Literal["batch"] = "batch"


@router.post("/v1/files")
async def upload_file(
    form: Annotated[UploadForm, Form(media_type="multipart/form-data")],
    request: Request,
    scope: Scope,
) -> Response:
    """Keep a file for a batch. With the header `anthropic-version`, all routes of files answer in
    the form of Anthropic's Files API."""
    file, files = form.file, _batches(scope).files
    name = (file.filename or "upload")[:MOST_NAME]
    given = file.content_type or ""
    stored = await files.upload(file.file, name, form.purpose, scope.tenant, given)
    return Json(_file(stored, request))


@router.get("/v1/files")
async def list_files(
    request: Request,
    scope: Scope,
    purpose: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    after: bodies.After = None,
    after_id: bodies.Cursor = None,
    before_id: bodies.Cursor = None,
    page: bodies.Cursor = None,
) -> Response:
    """The files, the latest first. `page` is the `next_page` of an answer in Anthropic's form."""
    files = _batches(scope).files.of(scope.tenant)[:: 1 if order == "asc" else -1]
    shown = (each for each in files if each.purpose != HIDDEN)
    known = {each.id: _file(each, request) for each in shown if purpose in (None, each.purpose)}
    if is_anthropic(request.scope):
        after_id = after_id if page is None else page.removeprefix(_PAGE)
        listed = bodies.page_of(known, limit, after_id, before_id)
        further = f"{_PAGE}{listed['last_id']}" if listed["has_more"] else None
        return Json(listed | {"next_page": further})
    return Json({"object": "list", **bodies.page_of(known, limit, after)})


@router.get("/v1/files/{file_id}")
async def get_file(file_id: str, request: Request, scope: Scope) -> Response:
    """What is known of a file."""
    return Json(_file(_batches(scope).files.find(file_id, scope.tenant), request))


@router.get("/v1/files/{file_id}/content", response_class=FileResponse)
async def get_content(file_id: str, scope: Scope) -> Response:
    """The content of a file."""
    files = _batches(scope).files
    path = files.path(files.find(file_id, scope.tenant).id)
    return FileResponse(path, media_type="application/octet-stream")


@router.delete("/v1/files/{file_id}")
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


class BatchBody(bodies.Body):
    """A request for a batch over an uploaded file."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None


@router.post("/v1/batches")
async def create_batch(body: BatchBody, scope: Scope) -> Response:
    """Answer all requests of a file."""
    batches = _batches(scope)
    file, key = batches.files.find(body.input_file_id, scope.tenant), scope.identity.name
    return Json(_batch(await batches.create(file, body.endpoint, metadata=body.metadata, key=key)))


@router.get("/v1/batches")
async def list_batches(
    scope: Scope,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: bodies.After = None,
) -> Response:
    """The batches, the latest first."""
    known = {each.id: _batch(each) for each in _batches(scope).of(scope.tenant)}
    return Json({"object": "list", **bodies.page_of(known, limit, after)})


@router.get("/v1/batches/{batch_id}")
async def get_batch(batch_id: str, scope: Scope) -> Response:
    """How far a batch is."""
    return Json(_batch(_batches(scope).find(batch_id, scope.tenant)))


@router.post("/v1/batches/{batch_id}/cancel")
async def cancel_batch(batch_id: str, scope: Scope) -> Response:
    """End a batch; the answers that it has are kept."""
    record = _batches(scope).find(batch_id, scope.tenant)
    await _batches(scope).cancel(record)
    return Json(_batch(record))


def _batch(record: BatchRecord) -> dict[str, Any]:
    """A batch as clients of OpenAI's API see it."""
    return {
        "id": record.id,
        "object": "batch",
        "endpoint": record.endpoint,
        "errors": {"object": "list", "data": record.wrong} if record.wrong else None,
        "input_file_id": record.input,
        "completion_window": "24h",
        "status": record.status,
        "output_file_id": record.output if record.has_output else None,
        "error_file_id": record.errors if record.has_errors else None,
        "created_at": record.created_at,
        "expires_at": None,
        **{f"{name}_at": record.times.get(name) for name in _TIMES},
        "request_counts": {each: getattr(record, each) for each in _COUNTS},
        "metadata": record.metadata,
    }


def _batches(scope: RequestScope) -> ServerBatches:
    return scope.server.kept(ServerBatches)


def _file(file: StoredFile, request: Request) -> dict[str, Any]:
    """A file as clients see it."""
    if is_anthropic(request.scope):
        return {
            "id": file.id,
            "type": "file",
            "filename": file.filename,
            "mime_type": file.mime_type or "application/octet-stream",
            "size_bytes": file.bytes,
            "created_at": bodies.instant(file.created_at),
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


class BatchRequest(bodies.Inner):
    """One request. params: the body of a request for a message."""

    custom_id: Annotated[str, Field(min_length=1, max_length=64)]
    params: dict[str, Any]


class MessageBatchBody(bodies.Body):
    """A request for a batch of messages."""

    requests: Annotated[list[BatchRequest], Field(min_length=1)]


@message_router.post("")
async def create_message_batch(body: MessageBatchBody, request: Request, scope: Scope) -> Response:
    """Answer requests for messages. What is wrong with one is told in its result."""
    count, most = len(body.requests), scope.server.config.max_rows
    if count > most:
        message = f"The batch has {count:,} requests; at most {most:,} may be."
        raise bad_request(message, "requests", "too_many_rows")
    names = {each.custom_id for each in body.requests}
    if len(names) < count:
        raise bad_request("custom_id must be unique in a batch.", "requests")
    batches = _batches(scope)
    lines = ({"custom_id": each.custom_id, "body": each.params} for each in body.requests)
    content = await asyncio.to_thread(lambda: BytesIO(b"".join(map(line, lines))))
    name = f"msgbatch_{secrets.token_hex(12)}"
    file = await batches.files.upload(content, f"{name}.jsonl", HIDDEN, scope.tenant)
    record = await batches.create(
        file,
        MESSAGES,
        id=name,
        status="in_progress",
        times={"in_progress": int(time.time())},
        total=count,
        key=scope.identity.name,
    )
    return Json(_message_batch(record, request))


@message_router.get("")
async def list_message_batches(
    request: Request,
    scope: Scope,
    limit: bodies.Limit = 20,
    after_id: bodies.Cursor = None,
    before_id: bodies.Cursor = None,
) -> Response:
    """The batches, the latest first."""
    records = _batches(scope).of(scope.tenant, messages=True)
    known = {each.id: _message_batch(each, request) for each in records}
    return Json(bodies.page_of(known, limit, after_id, before_id))


@message_router.get("/{batch_id}")
async def get_message_batch(batch_id: str, request: Request, scope: Scope) -> Response:
    """How far a batch is."""
    return Json(_message_batch(_found(batch_id, scope), request))


@message_router.post("/{batch_id}/cancel")
async def cancel_message_batch(batch_id: str, request: Request, scope: Scope) -> Response:
    """End a batch; the answers that it has are kept."""
    record = _found(batch_id, scope)
    await _batches(scope).cancel(record)
    return Json(_message_batch(record, request))


@message_router.delete("/{batch_id}")
async def delete_message_batch(batch_id: str, scope: Scope) -> Response:
    """Remove a batch that has ended, and its results."""
    record = _found(batch_id, scope)
    await _batches(scope).delete(record)
    return Json({"id": record.id, "type": "message_batch_deleted"})


@message_router.get("/{batch_id}/results", response_class=StreamingResponse)
async def get_results(batch_id: str, scope: Scope) -> Response:
    """The results of a batch that has ended, in any order."""
    record = _found(batch_id, scope)
    if not record.is_over:
        raise HttpError(404, "The batch has no results yet: it has not ended.", "not_found")
    results = _results(record, _batches(scope).files)
    return StreamingResponse(results, media_type="application/x-jsonl")


def _found(batch_id: str, scope: Scope) -> BatchRecord:
    return _batches(scope).find(batch_id, scope.tenant, messages=True)


def _results(record: BatchRecord, files: Files) -> Iterator[bytes]:
    """Lines with the results. Reads the files."""
    answered = set[str]()
    for is_there, name in ((record.has_output, record.output), (record.has_errors, record.errors)):
        for each in read_lines(files.path(name)) if is_there else ():
            answered.add(each["custom_id"])
            status, body = each["response"]["status_code"], each["response"]["body"]
            is_good = {"type": "succeeded", "message": body}
            result = is_good if status == 200 else {"type": "errored", "error": body}
            yield line({"custom_id": each["custom_id"], "result": result})
    left: dict[str, Any] = {"type": "canceled"}
    if record.status == "failed":
        why = record.wrong[0]["message"] if record.wrong else "The batch could not be answered."
        left = {"type": "errored", "error": anthropic_body(HttpError(500, why))}
    for each in read_lines(files.path(record.input)):
        if each["custom_id"] not in answered:
            yield line({"custom_id": each["custom_id"], "result": left})


def _message_batch(record: BatchRecord, request: Request) -> dict[str, Any]:
    """A batch as clients see it. Until it has ended, all of its requests are being processed."""
    over, times = record.is_over, record.times
    left = record.total - record.completed - record.failed
    is_cancelled = record.status == "cancelled"
    counts = {
        "processing": 0 if over else record.total,
        "succeeded": record.completed if over else 0,
        "errored": record.failed + (0 if is_cancelled else left) if over else 0,
        "canceled": left if over and is_cancelled else 0,
        "expired": 0,
    }
    working = "canceling" if record.status == "cancelling" else "in_progress"
    cancelled_at = times.get("cancelling")
    return {
        "id": record.id,
        "type": "message_batch",
        "processing_status": "ended" if over else working,
        "request_counts": counts,
        "created_at": bodies.instant(record.created_at),
        "expires_at": bodies.instant(record.created_at + DAY),
        "ended_at": bodies.instant(times[record.status]) if over else None,
        "cancel_initiated_at": None if cancelled_at is None else bodies.instant(cancelled_at),
        "archived_at": None,
        "results_url": str(request.url_for("get_results", batch_id=record.id)) if over else None,
    }
