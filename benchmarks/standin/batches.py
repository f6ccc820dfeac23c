"""Files and batches as OpenAI takes and shows them, and Anthropic's message batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from email.utils import formatdate
from types import ModuleType
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field

from benchmarks.standin.errors import Refused, many, parse, strict
from benchmarks.standin.http import Closed, Json, Request, Response
from benchmarks.standin.server import Standin, started
from benchmarks.standin.wires import anthropic, openai_chat, openai_responses

MOST_OPENAI, MOST_ANTHROPIC = 50_000, 100_000
DAY = 24 * 3600
Outcome = Json | Refused | Literal["expired", "canceled"]
"""What becomes of a request: a reply, an error, or how it ended without either."""
Answer = Callable[[ModuleType, Sequence[Json], float], Sequence[Outcome]]
"""What becomes of the requests of a batch, in the form of a wire, by the time it ends."""


PATH = Literal["/v1/chat/completions", "/v1/responses"]
LINE = strict(custom_id=str, method=Literal["POST"], url=PATH, body=dict[str, Any])
"""A line of OpenAI's input file."""
MADE = strict(
    input_file_id=str,
    endpoint=PATH,
    completion_window=Literal["24h"],
    metadata=dict[str, str] | None,
)
"""The body that makes a batch at OpenAI."""
NAME = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
MESSAGES = strict(requests=many(strict(custom_id=NAME, params=dict[str, Any]), MOST_ANTHROPIC))
"""The body that makes a batch at Anthropic."""


@dataclass(slots=True)
class Batch:
    """A batch at one of the providers."""

    id: str
    made: float
    ends: float
    wire: ModuleType
    lines: Sequence[tuple[str, Json]]
    """(custom id, request) of each."""
    looks: int = 0
    """How often it was looked at."""
    fields: Json = field(default_factory=dict)
    """What its maker said, and the files of results, for OpenAI."""
    problem: str | None = None
    """Why it cannot run."""
    cancelled: float | None = None
    """When it was, if it was."""
    done: list[tuple[str, Outcome]] | None = None
    """What became of each request, once it has ended."""

    @property
    def kinds(self) -> list[str]:
        """How each request ended, as Anthropic names it."""
        return [_kind(outcome) for _, outcome in self.done or ()]

    @property
    def refused(self) -> set[str]:
        """The requests that got an error."""
        return {name for name, outcome in self.done or () if isinstance(outcome, Refused)}


class Batches(Standin):
    """All files and batches of a customer.

    clock: in seconds. seconds, looks: until a batch ends. problem: why batches to come fail once
    they are read. refuse: what creating the next one is answered with; "hang up" for no reply, and
    "hang up late" for none though it is taken. spoil: what becomes of results on their way.
    """

    def __init__(
        self,
        answer: Answer,
        clock: Callable[[], float] = time.time,
        seconds: float = 60.0,
        looks: int = 0,
        problem: str | None = None,
        refuse: Refused | str | None = None,
        spoil: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self.answer, self.clock, self.seconds, self.looks = answer, clock, seconds, looks
        self.problem, self.refuse, self.spoil = problem, refuse, spoil
        self.files: dict[str, tuple[Json, bytes]] = {}
        self.by_id: dict[str, Batch] = {}
        self.creations = 0
        """Requests to make one."""

    @property
    def batches(self) -> list[Batch]:
        """In the order made."""
        return list(self.by_id.values())

    @property
    def submitted(self) -> list[str]:
        """The ids of all requests, in order."""
        return [name for batch in self.batches for name, _ in batch.lines]

    async def reply(self, request: Request) -> Response:
        """What is known of files or batches."""
        refuse = None
        if request.method == "POST" and request.path.endswith("/batches"):
            self.creations += 1
            refuse, self.refuse = self.refuse, None
        if isinstance(refuse, Refused):
            raise refuse
        if refuse == "hang up":
            raise Closed
        reply = self._route(request)
        if refuse is not None:
            raise Closed
        if self.spoil is not None and isinstance(reply, str):
            reply = self.spoil(reply)
        return Response(reply, headers={"Date": formatdate(self.clock(), usegmt=True)})

    def _route(self, request: Request) -> Json | str:
        """What a request is told. Raises Refused."""
        path, query = urlsplit(request.path).path, dict(parse_qsl(urlsplit(request.path).query))
        url = f"http://{request.headers.get('host', '')}"
        what = (request.method, *path.strip("/").split("/")[1:])
        reply: Json | str | None = None
        match what:
            case "POST", "files":
                reply = self._add_file(request.headers.get("content-type", ""), request.body)
            case "GET", "files", name, *content:
                file, data = self._file(name)
                reply = data.decode() if content else file
            case _, "batches", *_:
                reply = self._openai_batch(what[0], what[2:], query, request.body)
            case _, "messages", "batches", *_:
                reply = self._message_batch(what[0], what[3:], query, request.body, url)
        if reply is None:
            raise Refused(404, f"Invalid URL ({request.method} {path})")
        return reply

    def _openai_batch(
        self, method: str, names: tuple[str, ...], query: dict[str, str], body: bytes
    ) -> Json | None:
        match method, *names:
            case ["POST"]:
                return self._openai(self._make(body))
            case ["GET"]:
                batches, page = self._page("batch_", "after", query)
                return {"object": "list", "data": list(map(self._openai, batches)), **page}
            case "GET", name:
                return self._openai(self.look(name))
            case "POST", name, "cancel":
                return self._openai(self.cancel(name))
        return None

    def _message_batch(
        self, method: str, names: tuple[str, ...], query: dict[str, str], body: bytes, url: str
    ) -> Json | str | None:
        match method, *names:
            case ["POST"]:
                return _anthropic(self._make_messages(body), url)
            case ["GET"]:
                batches, page = self._page("msgbatch_", "after_id", query)
                return {"data": [_anthropic(batch, url) for batch in batches], **page}
            case "GET", name:
                return _anthropic(self.look(name), url)
            case "POST", name, "cancel":
                return _anthropic(self.cancel(name), url)
            case "GET", name, "results":
                return self._results(self.look(name))
        return None

    def _results(self, batch: Batch) -> str:
        if batch.done is None:
            raise Refused(404, f"Batch {batch.id} has no available results; it has not ended.")
        return _lines(_anthropic_line(*each) for each in batch.done)

    def _add_file(self, content_type: str, body: bytes) -> Json:
        """Store an uploaded file. content_type: of the form with the file in it."""
        head = f"Content-Type: {content_type}\r\n\r\n".encode()
        parts: dict[object, Message] = {
            part.get_param("name", header="content-disposition"): part
            for part in BytesParser().parsebytes(head + body).walk()
        }
        purpose = _content(parts["purpose"]).decode() if "purpose" in parts else ""
        if purpose != "batch" or "file" not in parts:
            raise Refused(400, f"Invalid value for purpose: '{purpose}'.", None, "purpose")
        return self._keep(_content(parts["file"]), str(parts["file"].get_filename()), purpose)

    def _keep(self, data: bytes, name: str, purpose: str) -> Json:
        file: Json = {
            "id": f"file-{len(self.files) + 1}",
            "object": "file",
            "bytes": len(data),
            "created_at": int(self.clock()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[file["id"]] = file, data
        return file

    def _file(self, name: str) -> tuple[Json, bytes]:
        """(what is known of a file, its content)."""
        if name not in self.files:
            raise Refused(404, f"No such File object: {name}", None, "id")
        return self.files[name]

    def _make(self, body: bytes) -> Batch:
        """A batch of OpenAI's. One whose file is wrong fails."""
        made = parse(MADE, body, "openai")
        _, data = self._file(made["input_file_id"])
        wire = openai_responses if made["endpoint"] == "/v1/responses" else openai_chat
        lines, problem = list[Json](), self.problem
        try:
            lines = [parse(LINE, line, "openai") for line in data.splitlines() if line.strip()]
            problem = problem or _wrong(lines, made["endpoint"])
        except Refused as refused:
            problem = refused.message
        asked = [] if problem else [(line["custom_id"], line["body"]) for line in lines]
        batch = self._add("batch", wire, asked)
        batch.fields, batch.problem = made, problem
        return batch

    def _make_messages(self, body: bytes) -> Batch:
        """A batch of Anthropic's."""
        made = parse(MESSAGES, body, "anthropic")
        lines = [(row["custom_id"], row["params"]) for row in made["requests"]]
        if len({name for name, _ in lines}) < len(lines):
            raise Refused(400, "requests: custom_id must be unique within a batch")
        return self._add("msgbatch", anthropic, lines)

    def _add(self, kind: str, wire: ModuleType, lines: Sequence[tuple[str, Json]]) -> Batch:
        now, name = self.clock(), f"{kind}_{len(self.by_id) + 1}"
        batch = self.by_id[name] = Batch(name, now, now + self.seconds, wire, lines)
        return batch

    def look(self, name: str) -> Batch:
        """A batch as it is now, looked at once more. Raises Refused."""
        if name not in self.by_id:
            raise Refused(404, f"No batch found with id '{name}'.")
        batch = self.by_id[name]
        batch.looks += 1
        is_due = batch.looks >= self.looks and self.clock() >= batch.ends
        if batch.done is None and batch.problem is None and (is_due or batch.cancelled is not None):
            outcomes: Sequence[Outcome] = ["canceled"] * len(batch.lines)
            if batch.cancelled is None:
                bodies = [body for _, body in batch.lines]
                outcomes = self.answer(batch.wire, bodies, batch.ends)
            names = (name for name, _ in batch.lines)
            batch.done = list(zip(names, outcomes, strict=True))
        return batch

    def cancel(self, name: str) -> Batch:
        """Cancel what has not ended: none of its requests is answered."""
        batch = self.look(name)
        if batch.done is None and batch.cancelled is None:
            batch.cancelled = batch.ends = self.clock()
        return batch

    def _page(self, kind: str, after: str, query: dict[str, str]) -> tuple[list[Batch], Json]:
        """(the batches after one, the newest first; what both providers say of the page)."""
        names = [name for name in reversed(self.by_id) if name.startswith(kind)]
        start = names.index(query[after]) + 1 if query.get(after) in names else 0
        most = int(query.get("limit", "20"))
        batches = [self.look(name) for name in names[start : start + most]]
        ids: list[str | None] = [batch.id for batch in batches] or [None]
        more = start + most < len(names)
        return batches, {"first_id": ids[0], "last_id": ids[-1], "has_more": more}

    def _openai(self, batch: Batch) -> Json:
        """A batch in OpenAI's form; its files are there once it has ended."""
        if batch.done is not None and "output_file_id" not in batch.fields:
            for name, kinds in (("output", ["succeeded"]), ("error", ["errored", "expired"])):
                told = _lines(_openai_line(*each) for each in batch.done if _kind(each[1]) in kinds)
                file = f"batch_{name}.jsonl"
                kept = told and self._keep(told.encode(), file, "batch_output")["id"]
                batch.fields[f"{name}_file_id"] = kept or None
        kinds, is_open = batch.kinds, batch.done is None
        completed = kinds.count("succeeded")
        status = "in_progress" if is_open else "completed"
        if "expired" in kinds:
            status = "expired"
        if batch.cancelled is not None:
            status = "cancelling" if is_open else "cancelled"
        errors = None
        if batch.problem is not None:
            error = {"code": "invalid_request", "message": batch.problem, "line": None}
            status, errors = "failed", {"object": "list", "data": [error | {"param": None}]}
        failed = len(kinds) - completed
        return {
            "id": batch.id,
            "object": "batch",
            "created_at": int(batch.made),
            "expires_at": int(batch.made) + DAY,
            "errors": errors,
            "request_counts": {"total": len(batch.lines), "completed": completed, "failed": failed},
            "status": status,
            **batch.fields,
        }


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return "errored"
    return outcome if isinstance(outcome, str) else "succeeded"


def _content(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _lines(lines: Iterator[Json]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def _openai_line(name: str, outcome: Outcome) -> Json:
    """A line of OpenAI's output or error file."""
    line: Json = {"id": f"batch_req_{name}", "custom_id": name, "response": None, "error": None}
    if isinstance(outcome, str):
        said = "This request could not be executed before the completion window expired."
        return line | {"error": {"code": "batch_expired", "message": said}}
    status, body = 200, outcome
    if isinstance(outcome, Refused):
        status, body = outcome.status, outcome.body("openai")
    return line | {"response": {"status_code": status, "request_id": f"req_{name}", "body": body}}


def _anthropic_line(name: str, outcome: Outcome) -> Json:
    """A line of Anthropic's results."""
    shown: Json = {"type": _kind(outcome)}
    if isinstance(outcome, Refused):
        shown["error"] = outcome.body("anthropic")
    elif not isinstance(outcome, str):
        shown["message"] = outcome
    return {"custom_id": name, "result": shown}


def _anthropic(batch: Batch, url: str) -> Json:
    """A batch in Anthropic's form. url: of the stand-in."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    for kind in batch.kinds if batch.done is not None else ["processing"] * len(batch.lines):
        counts[kind] += 1
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


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _wrong(lines: Sequence[Json], endpoint: str) -> str | None:
    """What is wrong with an input file as a whole."""
    if not lines:
        return "The input file is empty."
    if len(lines) > MOST_OPENAI:
        return f"The input file has more than {MOST_OPENAI} requests."
    if len({line["custom_id"] for line in lines}) < len(lines):
        return "The custom_id for each request must be unique."
    if any(line["url"] != endpoint for line in lines):
        return "The URL of a request does not match the endpoint of the batch."
    return None


@contextmanager
def serving(answer: Callable[[Json], Outcome], **settings: Any) -> Iterator[Batches]:
    """Batches that end at once, until the block ends: an outcome is a function of its request."""

    def outcomes(wire: ModuleType, bodies: Sequence[Json], now: float) -> Sequence[Outcome]:
        return [answer(body) for body in bodies]

    with started(Batches(outcomes, seconds=0.0, **settings)) as standin:
        yield standin
