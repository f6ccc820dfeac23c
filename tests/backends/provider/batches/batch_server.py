"""The batch APIs of OpenAI and Anthropic on loopback, as far as their SDKs use them."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from relquery.backends.provider.batches.store import Store

Body = dict[str, Any]
Answering = Callable[[Body], tuple[int, Body] | str]
"""A status and a body for the body of a request; or how it ends else: "expired", "canceled", or ""
for no result at all.
"""


@dataclass(slots=True)
class Batch:
    """lines: (custom id, body). looks: at it so far."""

    id: str
    created: float
    lines: list[tuple[str, Body]]
    metadata: Body
    looks: int = 0
    is_cancelled: bool = False


@dataclass(slots=True)
class BatchServer:
    """answer: what becomes of a request. looks: until a batch has ended. refuse: what creating the
    next one is answered with; "hang up" for none, and "hang up late" for none though it is taken.
    failed: why batches are refused once they are read. spoil: what becomes of results on their way.
    """

    answer: Answering
    looks: int = 1
    refuse: tuple[int, Body] | str | None = None
    failed: str | None = None
    spoil: Callable[[str], str] | None = None
    batches: list[Batch] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    creations: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    http: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    @property
    def submitted(self) -> list[str]:
        """The ids of all requests, in order."""
        return [custom for batch in self.batches for custom, _ in batch.lines]

    def create(self, lines: list[tuple[str, Body]], metadata: Body) -> Batch | tuple[int, Body]:
        with self.lock:
            self.creations += 1
            refuse = self.refuse
            if refuse is not None:
                self.refuse = None
                if isinstance(refuse, tuple):
                    return refuse
            number = len(self.batches)
            batch = Batch(f"batch_{number}", time.time() + number * 1e-3, lines, metadata)
            if refuse != "hang up":
                self.batches.append(batch)
            if refuse is not None:
                raise ConnectionResetError
            return batch

    def of(self, name: str) -> Batch:
        return next(batch for batch in self.batches if batch.id == name)

    def knows(self, name: str) -> bool:
        return any(batch.id == name for batch in self.batches)

    def look(self, batch: Batch) -> bool:
        """Whether a batch has ended."""
        with self.lock:
            batch.looks += 1
        return self.has_ended(batch)

    def has_ended(self, batch: Batch) -> bool:
        return batch.looks >= self.looks or batch.is_cancelled

    def outcomes(self, batch: Batch) -> list[tuple[str, tuple[int, Body] | str]]:
        if batch.is_cancelled:
            return [(custom, "canceled") for custom, _ in batch.lines]
        return [(custom, self.answer(body)) for custom, body in batch.lines]

    # OpenAI's form

    def openai(self, batch: Batch, *, ended: bool) -> Body:
        status = "cancelled" if batch.is_cancelled else "completed" if ended else "in_progress"
        if ended and any(how == "expired" for _, how in self.outcomes(batch)):
            status = "expired"
        size = len(batch.lines)
        good = sum(isinstance(how, tuple) and how[0] == 200 for _, how in self.outcomes(batch))
        bad = size - good
        counts = {"completed": good * ended, "failed": bad * ended}
        body: Body = {
            "id": batch.id, "object": "batch", "endpoint": "/v1/chat/completions",
            "completion_window": "24h", "input_file_id": "file", "status": status,
            "created_at": int(batch.created), "expires_at": int(batch.created) + 86400,
            "metadata": batch.metadata,
            "request_counts": {"total": size} | counts,
        }  # fmt: skip
        if self.failed is not None:
            body |= {"status": "failed", "errors": {"data": [{"message": self.failed}]}}
        elif ended:
            output, errors = self._files(batch)
            body |= {"output_file_id": output, "error_file_id": errors}
        return body

    def _files(self, batch: Batch) -> tuple[str | None, str | None]:
        good, bad = list[Body](), list[Body]()
        for custom, how in self.outcomes(batch):
            if isinstance(how, tuple):
                reply: Body = {"status_code": how[0], "body": how[1]}
                (good if how[0] == 200 else bad).append(
                    {"id": "r", "custom_id": custom, "response": reply, "error": None}
                )
            elif how == "expired":
                error = {"code": "batch_expired", "message": "This request could not be executed"}
                line: Body = {"id": "r", "custom_id": custom, "response": None, "error": error}
                bad.append(line)
        names = []
        for kind, lines in (("output", good), ("error", bad)):
            name = f"file-{batch.id}-{kind}" if lines else None
            if name is not None:
                self.files[name] = "".join(json.dumps(line) + "\n" for line in lines)
            names.append(name)
        return names[0], names[1]

    # Anthropic's form

    def anthropic(self, batch: Batch, *, ended: bool) -> Body:
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if ended:
            for line in self.anthropic_lines(batch):
                counts[line["result"]["type"]] += 1
        else:
            counts["processing"] = len(batch.lines)
        return {
            "id": batch.id, "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts, "created_at": _moment(batch.created),
            "expires_at": _moment(batch.created + 86400), "ended_at": None,
            "archived_at": None, "cancel_initiated_at": None,
            "results_url": f"{self.url}/v1/messages/batches/{batch.id}/results" if ended else None,
        }  # fmt: skip

    def anthropic_lines(self, batch: Batch) -> list[Body]:
        lines = []
        for custom, found in self.outcomes(batch):
            how = found or "canceled"
            result: Body
            if isinstance(how, str):
                result = {"type": how}
            elif how[0] == 200:
                result = {"type": "succeeded", "message": how[1]}
            else:
                kind = {400: "invalid_request_error", 500: "api_error"}[how[0]]
                error = {"type": kind, "message": how[1]["error"]["message"]}
                result = {"type": "errored", "error": {"type": "error", "error": error}}
            lines.append({"custom_id": custom, "result": result})
        return lines


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e6):06d}Z"


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    server: BatchServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        del format, args

    def do_GET(self) -> None:
        own, path = self.server.server, self.path.partition("?")[0]
        if found := re.fullmatch(r"/v1/files/([\w-]+)/content", path):
            self._results(own.files[found[1]])
        elif (found := re.search(r"/batches/(\w+)", path)) and not own.knows(found[1]):
            self._json(404, {"error": {"message": f"no batch {found[1]}"}})
        elif found := re.fullmatch(r"/v1/batches/(\w+)", path):
            batch = own.of(found[1])
            self._json(200, own.openai(batch, ended=own.look(batch)))
        elif path == "/v1/batches":
            some = [own.openai(each, ended=own.look(each)) for each in reversed(own.batches)]
            self._json(200, {"object": "list", "data": some, "has_more": False})
        elif found := re.fullmatch(r"/v1/messages/batches/(\w+)/results", path):
            lines = own.anthropic_lines(own.of(found[1]))
            self._results("".join(json.dumps(x) + "\n" for x in lines))
        elif found := re.fullmatch(r"/v1/messages/batches/(\w+)", path):
            batch = own.of(found[1])
            self._json(200, own.anthropic(batch, ended=own.look(batch)))
        elif path == "/v1/messages/batches":
            data = [own.anthropic(each, ended=own.look(each)) for each in own.batches[::-1]]
            self._json(200, {"data": data, "has_more": False, "first_id": None, "last_id": None})
        else:
            self._json(404, {"error": {"message": f"no {path}"}})

    def do_POST(self) -> None:
        own = self.server.server
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/files":
            name = f"file-{len(own.files)}"
            parts = data.split(b"\r\n")  # of multipart/form-data
            own.files[name] = max(parts, key=lambda part: part.count(b"custom_id")).decode()
            file = {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "x"}
            self._json(200, file | {"purpose": "batch", "status": "processed"})
        elif found := re.fullmatch(r"/v1(/messages)?/batches/(\w+)/cancel", self.path):
            batch = own.of(found[2])
            batch.is_cancelled = True
            form = own.anthropic if found[1] else own.openai
            self._json(200, form(batch, ended=True))
        elif self.path == "/v1/batches":
            body = json.loads(data)
            lines = [json.loads(line) for line in own.files[body["input_file_id"]].splitlines()]
            assert body["endpoint"] == lines[0]["url"]
            self._created(
                [(x["custom_id"], x["body"]) for x in lines], body["metadata"], own.openai
            )
        elif self.path == "/v1/messages/batches":
            requests = json.loads(data)["requests"]
            lines = [(each["custom_id"], each["params"]) for each in requests]
            assert all(re.fullmatch(r"[\w-]{1,64}", custom) for custom, _ in lines)
            self._created(lines, {}, own.anthropic)
        else:
            self._json(404, {"error": {"message": f"no {self.path}"}})

    def _created(
        self, lines: list[tuple[str, Body]], metadata: Body, form: Callable[..., Body]
    ) -> None:
        assert len({custom for custom, _ in lines}) == len(lines)
        try:
            made = self.server.server.create(lines, metadata)
        except ConnectionResetError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if isinstance(made, tuple):
            self._json(*made)
        else:
            self._json(200, form(made, ended=False))

    def _json(self, status: int, body: Body) -> None:
        self._text(json.dumps(body), status)

    def _results(self, text: str) -> None:
        spoil = self.server.server.spoil
        self._text(text if spoil is None else spoil(text))

    def _text(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(answer: Answering, **settings: Any) -> Iterator[BatchServer]:
    """A server that runs until the block ends."""
    own = BatchServer(answer, **settings)
    own.http = _Http(("127.0.0.1", 0), _Handler)
    own.http.server = own
    thread = threading.Thread(target=own.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield own
    finally:
        own.http.shutdown()
        own.http.server_close()
        thread.join()


def jobs(path: Any) -> int:
    """How many batches are written down."""
    return len(Store.open(path).all())
