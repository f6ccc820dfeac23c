"""/v1/messages/batches: requests of Anthropic's API that are answered in their own time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from relquery.serve.batches.batches import Batches, Record
from relquery.serve.batches.lines import MESSAGES, read_lines, write_lines
from relquery.serve.body import NONE_OF, Body, Inner, example
from relquery.serve.document import Responses, answers, errors
from relquery.serve.errors import HttpError, Json, anthropic_body, bad_request
from relquery.serve.pages import Cursor, Limit, anthropic_page
from relquery.serve.server import Scope
from relquery.serve.store import HIDDEN, Files
from relquery.serve.streaming import line
from relquery.serve.values import instant

router = APIRouter(tags=["Anthropic"], prefix="/v1/messages/batches")
DAY = 86_400
"""Seconds after which a batch of Anthropic's expires. Those of this server do not."""
_BATCH = answers("AnthropicMessageBatch", "The batch")
_RESULTS: Responses = {
    200: {
        "description": "A line of JSON for each request",
        "content": {"application/x-jsonl": {"schema": {"type": "string"}}},
    }
}


class BatchRequest(Inner):
    """One request. params: the body of a request for a message."""

    custom_id: Annotated[str, Field(min_length=1, max_length=64)]
    params: dict[str, Any]


class MessageBatchBody(Body):
    """A request for a batch of messages."""

    model_config = example(
        {
            "requests": [
                {
                    "custom_id": "tea",
                    "params": {
                        "model": "demo",
                        "max_tokens": 8,
                        "messages": [{"role": "user", "content": "Is tea good?"}],
                    },
                }
            ]
        }
    )
    ACCEPTED: ClassVar[Mapping[str, Any]] = {"betas": NONE_OF}
    requests: Annotated[list[BatchRequest], Field(min_length=1)]


def _errors(*statuses: int) -> Responses:
    return errors(*statuses, form="AnthropicError")


@router.post("", responses=_errors(507) | _BATCH)
async def create_batch(body: MessageBatchBody, request: Request, scope: Scope) -> Response:
    """Answer requests for messages. What is wrong with one is told in its result."""
    count, most = len(body.requests), scope.server.config.max_rows
    if count > most:
        message = f"The batch has {count:,} requests; at most {most:,} may be."
        raise bad_request(message, "requests", "too_many_rows")
    names = {each.custom_id for each in body.requests}
    if len(names) < count:
        raise bad_request("custom_id must be unique in a batch.", "requests")
    batches = scope.server.kept(Batches)
    lines = ((each.custom_id, each.params) for each in body.requests)
    content = await asyncio.to_thread(write_lines, lines, MESSAGES)
    name = f"msgbatch_{secrets.token_hex(12)}"
    file = await batches.files.upload(BytesIO(content), f"{name}.jsonl", HIDDEN, scope.tenant)
    record = await batches.create(
        file,
        MESSAGES,
        id=name,
        status="in_progress",
        times={"in_progress": int(time.time())},
        total=count,
        key=scope.identity.name,
    )
    return Json(_shown(record, request))


@router.get("", responses=_errors() | answers("AnthropicMessageBatch", "Batches", listed=True))
async def list_batches(
    request: Request,
    scope: Scope,
    limit: Limit = 20,
    after_id: Cursor = None,
    before_id: Cursor = None,
) -> Response:
    """The batches, the latest first."""
    found = reversed(scope.server.kept(Batches).of(scope.tenant, messages=True))
    known = {each.id: _shown(each, request) for each in found}
    return Json(anthropic_page(known, limit, after_id, before_id))


@router.get("/{batch_id}", responses=_errors(404) | _BATCH)
async def get_batch(batch_id: str, request: Request, scope: Scope) -> Response:
    """How far a batch is."""
    return Json(_shown(_found(batch_id, scope), request))


@router.post("/{batch_id}/cancel", responses=_errors(404, 409) | _BATCH)
async def cancel_batch(batch_id: str, request: Request, scope: Scope) -> Response:
    """End a batch; the answers that it has are kept."""
    record = _found(batch_id, scope)
    await scope.server.kept(Batches).cancel(record)
    return Json(_shown(record, request))


@router.delete("/{batch_id}", responses=_errors(404, 409) | answers("AnthropicDeleted", "It is"))
async def delete_batch(batch_id: str, scope: Scope) -> Response:
    """Remove a batch that has ended, and its results."""
    record = _found(batch_id, scope)
    await scope.server.kept(Batches).delete(record)
    return Json({"id": record.id, "type": "message_batch_deleted"})


@router.get("/{batch_id}/results", responses=_errors(404) | _RESULTS, response_class=Response)
async def get_results(batch_id: str, scope: Scope) -> Response:
    """The results of a batch that has ended, in any order."""
    record = _found(batch_id, scope)
    if not record.is_over:
        raise HttpError(404, "The batch has no results yet: it has not ended.", "not_found")
    results = _results(record, scope.server.kept(Batches).files)
    return StreamingResponse(results, media_type="application/x-jsonl")


def _found(batch_id: str, scope: Scope) -> Record:
    return scope.server.kept(Batches).find(batch_id, scope.tenant, messages=True)


def _results(record: Record, files: Files) -> Iterator[bytes]:
    """Lines with the results. Reads the files."""
    answered = set[str]()
    for is_there, name in ((record.has_output, record.output), (record.has_errors, record.errors)):
        for each in read_lines(files.path(name)) if is_there else ():
            answered.add(each["custom_id"])
            yield _result(each["custom_id"], each["response"])
    left: dict[str, Any] = {"type": "canceled"}
    if record.status == "failed":
        why = record.wrong[0]["message"] if record.wrong else "The batch could not be answered."
        left = {"type": "errored", "error": anthropic_body(HttpError(500, why))}
    for each in read_lines(files.path(record.input)):
        if each["custom_id"] not in answered:
            yield line({"custom_id": each["custom_id"], "result": left})


def _result(custom_id: str, response: dict[str, Any]) -> bytes:
    body, status = response["body"], response["status_code"]
    result = {"type": "succeeded", "message": body}
    if status != 200:
        error = anthropic_body(HttpError(status, body["error"]["message"]), response["request_id"])
        result = {"type": "errored", "error": error}
    return line({"custom_id": custom_id, "result": result})


def _shown(record: Record, request: Request) -> dict[str, Any]:
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
        "created_at": instant(record.created_at),
        "expires_at": instant(record.created_at + DAY),
        "ended_at": instant(times[record.status]) if over else None,
        "cancel_initiated_at": None if cancelled_at is None else instant(cancelled_at),
        "archived_at": None,
        "results_url": str(request.url_for("get_results", batch_id=record.id)) if over else None,
    }
