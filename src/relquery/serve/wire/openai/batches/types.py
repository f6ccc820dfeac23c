"""What files and batches look like, for clients and for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel

from relquery.serve.errors import HttpError


class FileObject(BaseModel):
    """A file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: None = None
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"] = "processed"


class FileDeleted(BaseModel):
    """A file that was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class FileList(BaseModel):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class RequestCounts(BaseModel):
    """Lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchObject(BaseModel):
    """A batch; see OpenAI's reference."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: dict[str, Any] | None
    input_file_id: str
    completion_window: Literal["24h"]
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchList(BaseModel):
    """A page of batches."""

    object: Literal["list"] = "list"
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


After = Annotated[str | None, Query(description="The id before the page's first one")]


def page_of(ids: list[str], after: str | None, limit: int) -> tuple[list[str], bool]:
    """(ids of a page, whether more follow). Raises HttpError for an unknown `after`."""
    start = 0
    if after is not None:
        if after not in ids:
            raise HttpError(400, f"There is no '{after}' in this list.", "invalid_value", "after")
        start = ids.index(after) + 1
    return ids[start : start + limit], start + limit < len(ids)
