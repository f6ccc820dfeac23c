"""Traces, as an OpenTelemetry collector gets them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from relquery.prompt import Answer, Finish
from relquery.serve.auth import AdmissionController, Authenticator
from relquery.serve.logs import Tracing
from relquery.serve.metrics import Metrics
from relquery.serve.middleware import RequestMiddleware
from relquery.serve.settings import ServeConfig

pytest.importorskip("opentelemetry.instrumentation.asgi", reason="needs relquery[otel]")

CHAT = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """The address of a collector, and (path, body) of what it got."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def test_a_request_is_a_span_below_its_callers(
    collector: tuple[str, list[tuple[str, bytes]]],
) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    address, got = collector
    config = ServeConfig("demo")
    server: Any = SimpleNamespace(
        models=("demo",), config=config, serving=0, gate=Authenticator(), metrics=Metrics("p")
    )
    server.admission = AdmissionController(config)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path=CHAT)
        if scope["path"] == CHAT:
            asker = scope["state"]["scope"]
            asker.prompts = 1
            asker.answered(Answer("x", Finish.STOP, prompt_tokens=7, output_tokens=3), 0.1)
        await PlainTextResponse("x")(scope, receive, send)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    headers = [(b"host", b"localhost"), (b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": CHAT,
        "headers": headers,
        "scheme": "http",
    }
    scope |= {"server": ("localhost", 80), "query_string": b"", "http_version": "1.1"}
    traces = Tracing(address)
    traced = traces.traced(RequestMiddleware(app, server, traces))
    for path in ("/health", CHAT):
        asyncio.run(traced(scope | {"path": path, "state": {}}, receive, send))  # type: ignore[arg-type]
    traces.stop()
    ((path, body),) = got
    assert path == "/v1/traces"
    sent = ExportTraceServiceRequest()
    sent.ParseFromString(body)
    (span,) = sent.resource_spans[0].scope_spans[0].spans
    assert span.name == "chat demo"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    told = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
    names = ("operation.name", "request.model", "usage.input_tokens", "usage.output_tokens")
    assert [told[f"gen_ai.{name}"] for name in names] == ["chat", "demo", 7, 3]
    assert (told["http.route"], told["relquery.prompts"]) == (CHAT, 1)
    assert 200 in (told.get("http.status_code"), told.get("http.response.status_code"))
