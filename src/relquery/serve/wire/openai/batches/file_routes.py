"""/v1/files"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, UploadFile
from starlette.responses import FileResponse, Response

from relquery.serve.asked import Caller
from relquery.serve.documented import errors
from relquery.serve.errors import HttpError, not_supported
from relquery.serve.wire.openai.batches.batches import Batches
from relquery.serve.wire.openai.batches.files import StoredFile
from relquery.serve.wire.openai.batches.types import (
    After,
    FileDeleted,
    FileList,
    FileObject,
    page_of,
)

router = APIRouter(tags=["OpenAI"])
MOST_NAME = 255


@router.post("/v1/files", responses=errors())
async def upload_file(
    request: Request, file: UploadFile, purpose: Annotated[Literal["batch"], Form()]
) -> FileObject:
    """Keep a file for a batch."""
    for name in await request.form():
        if name not in ("file", "purpose"):
            raise not_supported(name)
    asker, files = Caller(request).asker, batches_of(request).files
    filename = (file.filename or "upload")[:MOST_NAME]
    return shown(await files.upload(file.file, filename, purpose, asker.tenant))


@router.get("/v1/files", responses=errors())
async def list_files(
    request: Request,
    purpose: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    after: After = None,
) -> FileList:
    """The files, the latest first."""
    found = batches_of(request).files.of(Caller(request).asker.tenant)
    known = {each.id: each for each in found if purpose in (None, each.purpose)}
    ids = list(known) if order == "asc" else list(reversed(known))
    page, has_more = page_of(ids, after, limit)
    return FileList(
        data=[shown(known[name]) for name in page],
        first_id=page[0] if page else None,
        last_id=page[-1] if page else None,
        has_more=has_more,
    )


@router.get("/v1/files/{file_id}", responses=errors(404))
async def get_file(file_id: str, request: Request) -> FileObject:
    """What is known of a file."""
    return shown(find_file(request, file_id))


@router.get(
    "/v1/files/{file_id}/content",
    responses=errors(404)
    | {
        200: {
            "description": "The content",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
    response_class=Response,
)
async def get_content(file_id: str, request: Request) -> Response:
    """The content of a file."""
    file = find_file(request, file_id)
    path = batches_of(request).files.path(file.id)
    return FileResponse(path, media_type="application/octet-stream")


@router.delete("/v1/files/{file_id}", responses=errors(404, 409))
async def delete_file(file_id: str, request: Request) -> FileDeleted:
    """Remove a file."""
    file, batches = find_file(request, file_id), batches_of(request)
    if batches.reads(file):
        raise HttpError(
            409, "A batch reads this file. Cancel it, or wait until it has ended.", "conflict"
        )
    await batches.files.delete(file)
    return FileDeleted(id=file.id)


def batches_of(request: Request) -> Batches:
    """The server's batches."""
    return Caller(request).server.kept(Batches)


def find_file(request: Request, name: str) -> StoredFile:
    """The caller's file. Raises HttpError if there is none."""
    return batches_of(request).files.find(name, Caller(request).asker.tenant)


def shown(file: StoredFile) -> FileObject:
    """A file as clients see it."""
    return FileObject.model_validate(
        {
            "id": file.id,
            "bytes": file.bytes,
            "created_at": file.created_at,
            "filename": file.filename,
            "purpose": file.purpose,
        }
    )
