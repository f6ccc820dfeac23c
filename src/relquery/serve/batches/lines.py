"""The lines of a batch: its input, and the answers that are written."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from relquery.serve.auth import private
from relquery.serve.bodies import Inner, check_json
from relquery.serve.errors import HttpError
from relquery.serve.server import Server

MOST_ERRORS = 100
"""That are told of one file."""
_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "model_type": "invalid_json_line",
}
"""What OpenAI's API calls what may be wrong with a line; all else is an invalid value."""


class AnsweredLine(NamedTuple):
    """A request of a batch with its answer."""

    custom_id: str
    status: int
    body: Any
    request: str
    """The id under which it was asked."""


class Wrong(NamedTuple):
    """A fault of a line. line: counted from 1; None for the file."""

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
        problem = _check(text, endpoint, server.models, known)
        if problem is not None:
            wrong.append(problem._replace(line=number))
        if len(wrong) >= MOST_ERRORS:
            break
    if not count:
        wrong.append(Wrong("empty_file", "The input file has no requests."))
    most = server.config.max_rows
    if count > most:
        message = f"The input file has {count:,} requests; a batch may have {most:,}."
        wrong.insert(0, Wrong("too_many_tasks", message))
    return count, wrong


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

    def add(self, answers: Iterable[AnsweredLine]) -> None:
        """Write answers. Each is on disk, or on its way, after this.

        All are written or none: raises OSError where there is no room.
        """
        lines: dict[bool, list[bytes]] = {True: [], False: []}
        for each in answers:
            lines[each.status == 200].append(_line(each))
        with self._lock:
            written = _append(self._output, lines[True])
            try:
                _append(self._errors, lines[False])
            except OSError:
                os.truncate(self._output, written)
                raise
            self.succeeded += len(lines[True])
            self.failed += len(lines[False])


def _line(answered: AnsweredLine) -> bytes:
    custom_id, status, body, request = answered
    line = {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": custom_id,
        "response": {"status_code": status, "request_id": request, "body": body},
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
    answered, size = set(), 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            answered.add(str(json.loads(line)["custom_id"]))
            size += len(line)
        file.truncate(size)
    return answered
