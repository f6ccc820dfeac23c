"""Traces, as an OpenTelemetry collector gets them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from relquery.prompt import Answer, Finish
from relquery.serve.access.gate import Asker
from relquery.serve.operation.served import Served
from relquery.serve.operation.tracing import open_tracing

pytest.importorskip("opentelemetry.sdk", reason="needs relquery[otel]")

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
    asker = Asker("t")
    asker.account.prompts = 1
    asker.account.answered(Answer("x", Finish.STOP, prompt_tokens=7, output_tokens=3))
    traces = open_tracing(address, "demo")
    asked: Any = {"id": "req_1", "method": "POST", "path": CHAT, "route": CHAT, "asker": asker}
    asked |= {"headers": [(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())]}
    traces.served(Served(**asked, status=200, began=10**18, seconds=0.5, error=None))
    traces.stop()
    ((path, body),) = got
    assert path == "/v1/traces"
    sent = ExportTraceServiceRequest()
    sent.ParseFromString(body)
    (span,) = sent.resource_spans[0].scope_spans[0].spans
    assert span.name == "chat demo"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 500_000_000
    told = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
    names = ("operation.name", "request.model", "usage.input_tokens", "usage.output_tokens")
    assert [told[f"gen_ai.{name}"] for name in names] == ["chat", "demo", 7, 3]
