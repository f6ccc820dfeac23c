"""The lines of a batch: its input, the requests that they are, and the answers that are written."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

import relquery.engine.requests.declared as engine
from relquery.serve.anthropic.messages import read_message
from relquery.serve.anthropic.requests import MessageBody
from relquery.serve.batches.store import Files, private
from relquery.serve.body import Inner, check_json, declared_by, invalid
from relquery.serve.errors import HttpError, as_http, bad_request, openai_body
from relquery.serve.openai.completions import (
    ChatBody,
    CompletionBody,
    read_chat,
    read_completion,
)
from relquery.serve.openai.responses import ResponseBody, read_response
from relquery.serve.server import Question, Server

MOST_ERRORS = 100
"""That are told of one file."""
MESSAGES = "/v1/messages"
"""The endpoint of batches of Anthropic's API."""
ENDPOINTS: Mapping[str, tuple[type[BaseModel], Callable[[Any, Server], Question]]] = {
    "/v1/chat/completions": (ChatBody, read_chat),
    "/v1/completions": (CompletionBody, read_completion),
    "/v1/responses": (ResponseBody, read_response),
    MESSAGES: (MessageBody, read_message),
}
"""The body that a line may have, and what reads it."""
_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "model_type": "invalid_json_line",
}
"""What OpenAI's API calls what may be wrong with a line; all else is an invalid value."""
Answered = tuple[str, dict[str, Any] | HttpError]
"""A custom_id, and the body of its answer or why there is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch."""

    custom_id: str
    question: Question | HttpError
    """What it asks for, or why it cannot be asked."""
    declared: engine.Declared | None = None
    """The relQuery that it says it belongs to; None for the batch's own."""

    @property
    def prompts(self) -> int:
        """How many the engine is asked."""
        return 0 if isinstance(self.question, HttpError) else len(self.question.places)


class Wrong(NamedTuple):
    """What is wrong with a line. line: counted from 1; None for the file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


def validate(path: Path, endpoint: str, server: Server) -> tuple[int, list[Wrong]]:
    """(how many requests there are, what is wrong with them). Reads the file."""
    known: set[str] = set()
    wrong: list[Wrong] = []
    count = 0
    for number, text in _texts(path):
        count += 1
        found = _check(text, endpoint, server.models, known)
        if found is not None:
            wrong.append(found._replace(line=number))
        if len(wrong) >= MOST_ERRORS:
            break
    if not count:
        wrong.append(Wrong("empty_file", "The input file has no requests."))
    most = server.config.max_rows
    if count > most:
        message = f"The input file has {count:,} requests; a batch may have {most:,}."
        wrong.insert(0, Wrong("too_many_tasks", message))
    return count, wrong


def unanswered_lines(
    path: Path, endpoint: str, server: Server, answered: set[str], tenant: str
) -> Iterator[Line]:
    """The requests that have no answer, in the order of the file. tenant: whose files they may
    read. Waits for the disk."""
    for given in read_lines(path):
        if given["custom_id"] not in answered:
            yield _read(given["custom_id"], endpoint, given["body"], server, tenant)


def _read(custom_id: str, endpoint: str, given: Any, server: Server, tenant: str) -> Line:
    kind, read = ENDPOINTS[endpoint]
    try:
        body: Any = kind.model_validate(given)
        if body.stream:
            raise bad_request("A batch cannot be streamed.", "stream", "unsupported")
        if isinstance(body, MessageBody):
            body.read_files(server.kept(Files), tenant)
        return Line(custom_id, read(body, server), declared_by(body.relquery, ()))
    except ValidationError as error:
        return Line(custom_id, invalid(error.errors()))
    except Exception as error:
        return Line(custom_id, as_http(error))


def write_lines(requests: Iterable[tuple[str, Any]], endpoint: str) -> bytes:
    """The content of an input file. requests: (custom_id, body)."""
    return b"".join(
        json.dumps({"custom_id": name, "method": "POST", "url": endpoint, "body": body}).encode()
        + b"\n"
        for name, body in requests
    )


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of lines, which is whole."""
    for _, text in _texts(path):
        yield json.loads(text)


def _texts(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, text) of each line that is not blank."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, text


class BatchLine(Inner):
    """A line of an input file."""

    custom_id: str
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


def _check(text: bytes, endpoint: str, models: tuple[str, ...], known: set[str]) -> Wrong | None:
    """What is wrong with a line; without a fault, its id is known."""
    try:
        check_json(text)
        line = BatchLine.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))[:100]
        code = _CODES.get(first["type"], "invalid_value")
        return Wrong(code, f"{name}: {first['msg']}" if name else first["msg"], name or None)
    except (HttpError, ValueError, RecursionError):
        return Wrong("invalid_json_line", "This line is not parseable as valid JSON.")
    if line.url != endpoint:
        return Wrong("mismatched_endpoint", f"url must be the batch's endpoint, {endpoint}.", "url")
    if line.custom_id in known:
        message = f"The custom_id {line.custom_id!r} is not unique."
        return Wrong("duplicate_custom_id", message, "custom_id")
    known.add(line.custom_id)
    if line.body.get("model") not in models:
        message = f"The model is not served. Served: {', '.join(models)}."
        return Wrong("model_not_found", message, "body.model")
    return None


class Results:
    """The output and the errors of one batch; any thread may add to them.

    succeeded, failed: lines of each.
    """

    def __init__(self, output: Path, errors: Path) -> None:
        self._output, self._errors = output, errors
        self._lock = Lock()
        self.succeeded = self.failed = 0

    def recover(self) -> set[str]:
        """The ids of requests that have an answer from an earlier run; half a line is removed."""
        with self._lock:
            succeeded, failed = _recover(self._output), _recover(self._errors)
            self.succeeded, self.failed = len(succeeded), len(failed)
        return succeeded | failed

    def add(self, lines: Iterable[Answered]) -> None:
        """Write answers: (custom_id, body or error). Each is on disk, or on its way, after this.

        All are written or none: raises OSError where there is no room.
        """
        good: list[bytes] = []
        bad: list[bytes] = []
        for custom_id, found in lines:
            (bad if isinstance(found, HttpError) else good).append(_line(custom_id, found))
        with self._lock:
            written = _append(self._output, good)
            try:
                _append(self._errors, bad)
            except OSError:
                os.truncate(self._output, written)
                raise
            self.succeeded += len(good)
            self.failed += len(bad)


def _line(custom_id: str, found: dict[str, Any] | HttpError) -> bytes:
    status = found.status if isinstance(found, HttpError) else 200
    line = {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": custom_id,
        "response": {
            "status_code": status,
            "request_id": f"req_{secrets.token_hex(12)}",
            "body": openai_body(found) if isinstance(found, HttpError) else found,
        },
        "error": None,
    }
    return json.dumps(line).encode() + b"\n"


def _append(path: Path, lines: list[bytes]) -> int:
    """Write lines, all or none; the size of the file before."""
    if not lines:
        return path.stat().st_size if path.exists() else 0
    with open(path, "ab", buffering=0, opener=private) as file:
        size = file.tell()
        content = memoryview(b"".join(lines))
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(size)
            raise
    return size


def _recover(path: Path) -> set[str]:
    """The custom ids of all whole lines; what follows them is cut off."""
    if not path.exists():
        return set()
    found, size = set(), 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            found.add(str(json.loads(line)["custom_id"]))
            size += len(line)
        file.truncate(size)
    return found
