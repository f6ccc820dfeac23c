"""The files that a batch writes, line by line."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from relquery.serve.errors import HttpError, openai_body
from relquery.serve.wire.openai.batches.folder import private


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

    def add(self, lines: Iterable[tuple[str, dict[str, Any] | HttpError]]) -> None:
        """Write answers: (custom_id, body or error). Each is on disk, or on its way, after this."""
        good: list[bytes] = []
        bad: list[bytes] = []
        for custom_id, found in lines:
            (bad if isinstance(found, HttpError) else good).append(_line(custom_id, found))
        with self._lock:
            _append(self._output, good)
            _append(self._errors, bad)
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


def _append(path: Path, lines: list[bytes]) -> None:
    if lines:
        with open(path, "ab", opener=private) as file:
            file.write(b"".join(lines))


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
