"""What a client's connection may send, and how long it may take."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relquery.serve.errors import HttpError, openai_body

MOST_HEAD = 64 << 10
"""Bytes of a request's first line and headers, and of what follows a body in chunks."""
_WORDS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class Connection(HttpToolsProtocol):
    """uvicorn's, which by itself would wait for a head of any size without end.

    patience: seconds in which a head must come, in which more of a body must come, and in which all
    of a body must come that is answered already.
    """

    patience: ClassVar[float] = 30.0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head, self._read = True, 0
        self._tiring: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._read += len(data)
        elif self._tiring is not None and not self.cycle.response_complete:
            self._wait()
        super().data_received(data)
        if self._in_head and self._read > MOST_HEAD and not self.transport.is_closing():
            self._refuse(431, f"The request's headers have more than {MOST_HEAD:,} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # a further request of the connection
            self._in_head, self._read = True, 0
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            self._read += len(name) + len(value)
            if self._read > 2 * MOST_HEAD:
                raise ValueError("too much follows the body")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._rest()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What does not parse is answered in the form of all errors."""
        self._refuse(400, msg)

    def _wait(self) -> None:
        self._rest()
        self._tiring = self.loop.call_later(self.patience, self._tire)

    def _rest(self) -> None:
        if self._tiring is not None:
            self._tiring.cancel()
            self._tiring = None

    def _tire(self) -> None:
        if self.flow.read_paused:  # the server is slow, not the client
            self._wait()
        elif not self.transport.is_closing():
            self._refuse(408, f"No more of the request has come in {self.patience:g} seconds.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless an answer has begun, and close the connection."""
        self._rest()
        earlier = self._in_head and (self.cycle is None or self.cycle.response_complete)
        if earlier or not self.cycle.response_started:
            content = json.dumps(openai_body(HttpError(status, message))).encode()
            head = (
                f"HTTP/1.1 {status} {_WORDS[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
        self.transport.close()
