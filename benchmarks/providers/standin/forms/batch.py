"""Batches as OpenAI and Anthropic take and show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.providers.standin.errors import Refused, Strict
from benchmarks.providers.standin.forms.asked import Json

MOST_OPENAI, MOST_ANTHROPIC = 50_000, 100_000
DAY = 24 * 3600
Outcome = Json | Refused | Literal["expired", "canceled"]
"""What becomes of a request: a reply, an error, or how it ended without either."""


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
    """What became of a request."""

    custom_id: str
    outcome: Outcome

    @property
    def kind(self) -> str:
        """As Anthropic names it."""
        if isinstance(self.outcome, Refused):
            return "errored"
        return self.outcome if isinstance(self.outcome, str) else "succeeded"


@dataclass(slots=True)
class Batch:
    """lines: (custom id, request) of each. ends: when. cancelled: when it was, if it was.

    looks: how often it was looked at. done: the results, once it has ended. fields: what its maker
        said, and the files of results, for OpenAI. problem: why it cannot run.
    """

    id: str
    made: float
    ends: float
    form: ModuleType
    lines: Sequence[tuple[str, Json]]
    looks: int = 0
    fields: Json = field(default_factory=dict)
    problem: str | None = None
    cancelled: float | None = None
    done: list[Result] | None = None

    @property
    def refused(self) -> set[str]:
        """The requests that got an error."""
        return {result.custom_id for result in self.done or () if result.kind == "errored"}


def openai(batch: Batch) -> Json:
    """A batch in OpenAI's form."""
    kinds = [result.kind for result in batch.done or []]
    completed = kinds.count("succeeded")
    status = "in_progress" if batch.done is None else "completed"
    if "expired" in kinds:
        status = "expired"
    if batch.cancelled is not None:
        status = "cancelling" if batch.done is None else "cancelled"
    failed = len(kinds) - completed
    counts = {"total": len(batch.lines), "completed": completed, "failed": failed}
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


def openai_line(result: Result) -> Json:
    """A line of OpenAI's output or error file."""
    name, how = result.custom_id, result.outcome
    line: Json = {"id": f"batch_req_{name}", "custom_id": name, "response": None, "error": None}
    if isinstance(how, str):
        said = "This request could not be executed before the completion window expired."
        return line | {"error": {"code": "batch_expired", "message": said}}
    status, body = (how.status, how.body("openai")) if isinstance(how, Refused) else (200, how)
    return line | {"response": {"status_code": status, "request_id": f"req_{name}", "body": body}}


def anthropic(batch: Batch, url: str) -> Json:
    """A batch in Anthropic's form. url: of the stand-in."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.done is None:
        counts["processing"] = len(batch.lines)
    for result in batch.done or []:
        counts[result.kind] += 1
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


def anthropic_line(result: Result) -> Json:
    """A line of Anthropic's results."""
    shown: Json = {"type": result.kind}
    if isinstance(result.outcome, Refused):
        shown["error"] = result.outcome.body("anthropic")
    elif not isinstance(result.outcome, str):
        shown["message"] = result.outcome
    return {"custom_id": result.custom_id, "result": shown}


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
