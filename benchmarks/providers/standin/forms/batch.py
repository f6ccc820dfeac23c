"""Batches as OpenAI and Anthropic take and show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.providers.standin.errors import Refused, Strict
from benchmarks.providers.standin.forms import messages
from benchmarks.providers.standin.forms.asked import Asked, Given, Json

MOST_OPENAI, MOST_ANTHROPIC = 50_000, 100_000
DAY = 24 * 3600
Parsed = Asked | Refused


class Line(Strict):
    """A line of OpenAI's input file."""

    custom_id: str
    method: Literal["POST"]
    url: Literal["/v1/chat/completions", "/v1/responses"]
    body: dict[str, Any]


class MadeBatch(Strict):
    """The body that makes a batch at OpenAI."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: dict[str, str] | None = None


class Row(Strict):
    """A request of Anthropic's batches."""

    custom_id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    params: dict[str, Any]


class MadeMessages(Strict):
    """The body that makes a batch at Anthropic."""

    requests: Annotated[list[Row], Field(min_length=1, max_length=MOST_ANTHROPIC)]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a request. asked: None if it could not be read, or was cancelled."""

    custom_id: str
    given: Given | Refused
    asked: Asked | None


@dataclass(slots=True)
class Batch:
    """asked: (custom id, request) of each. ends: when. cancelled: when it was, if it was.

    done: the results, once it has ended. fields: what its maker said, and the files of results, for
        OpenAI. problem: why it cannot run.
    """

    id: str
    made: float
    ends: float
    form: ModuleType
    asked: Sequence[tuple[str, Parsed]]
    fields: Json = field(default_factory=dict)
    problem: str | None = None
    cancelled: float | None = None
    done: list[Result] | None = None


def openai(batch: Batch) -> Json:
    """A batch in OpenAI's form."""
    results = batch.done or []
    failed = sum(isinstance(result.given, Refused) for result in results)
    status = "in_progress" if batch.done is None else "completed"
    if batch.cancelled is not None:
        status = "cancelling" if batch.done is None else "cancelled"
    counts = {"total": len(batch.asked), "completed": len(results) - failed, "failed": failed}
    shown: Json = {
        "id": batch.id,
        "object": "batch",
        "created_at": int(batch.made),
        "expires_at": int(batch.made) + DAY,
        "errors": None,
        "request_counts": counts,
        "status": status,
        **batch.fields,
    }
    if batch.problem is not None:
        wrong = {"code": "invalid_request", "message": batch.problem, "line": None, "param": None}
        shown |= {"status": "failed", "errors": {"object": "list", "data": [wrong]}}
    return shown


def openai_line(result: Result, form: ModuleType) -> Json:
    """A line of OpenAI's output or error file."""
    name, given = result.custom_id, result.given
    if isinstance(given, Refused):
        status, body = given.status, json.loads(given.body("openai"))
    else:
        status, body = 200, form.reply(result.asked, given)
    response = {"status_code": status, "request_id": f"req_{name}", "body": body}
    return {"id": f"batch_req_{name}", "custom_id": name, "response": response, "error": None}


def anthropic(batch: Batch, url: str) -> Json:
    """A batch in Anthropic's form. url: of the stand-in."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.done is None:
        counts["processing"] = len(batch.asked)
    for result in batch.done or []:
        counts[_kind(result, batch)] += 1
    is_ended = batch.done is not None
    status = "ended" if is_ended else "in_progress" if batch.cancelled is None else "canceling"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": _moment(batch.made),
        "expires_at": _moment(batch.made + DAY),
        "ended_at": _moment(batch.ends) if is_ended else None,
        "archived_at": None,
        "cancel_initiated_at": None if batch.cancelled is None else _moment(batch.cancelled),
        "results_url": f"{url}/v1/messages/batches/{batch.id}/results" if is_ended else None,
    }


def anthropic_line(result: Result, batch: Batch) -> Json:
    """A line of Anthropic's results."""
    kind, given = _kind(result, batch), result.given
    shown: Json = {"type": kind}
    if isinstance(given, Given) and result.asked is not None:
        shown["message"] = messages.reply(result.asked, given)
    elif isinstance(given, Refused) and kind == "errored":
        shown["error"] = json.loads(given.body("anthropic"))
    return {"custom_id": result.custom_id, "result": shown}


def _kind(result: Result, batch: Batch) -> str:
    if isinstance(result.given, Given):
        return "succeeded"
    return "errored" if batch.cancelled is None else "canceled"


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def wrong(lines: Sequence[Line], endpoint: str) -> str | None:
    """What is wrong with an input file as a whole."""
    ids = [line.custom_id for line in lines]
    if not lines:
        return "The input file is empty."
    if len(lines) > MOST_OPENAI:
        return f"The input file has more than {MOST_OPENAI} requests."
    if len(set(ids)) < len(ids):
        return "The custom_id for each request must be unique."
    if any(line.url != endpoint for line in lines):
        return "The URL of a request does not match the endpoint of the batch."
    return None
