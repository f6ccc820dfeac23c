"""Traces of requests, sent to an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Protocol

from relquery.errors import MissingExtraError
from relquery.serve.operation.served import Served


class Tracing(Protocol):
    """Where requests are told once they have been served."""

    def served(self, request: Served) -> None:
        """Note a request; must not wait."""

    def stop(self) -> None:
        """Send what is left; may wait some seconds."""


def open_tracing(endpoint: str, model: str) -> Tracing:
    """Spans for a collector. endpoint: such as http://localhost:4318; they go to its /v1/traces.

    Raises MissingExtraError without the `otel` extra.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise MissingExtraError("Sending traces (--otlp)", "otel") from error
    about = {"service.name": "relquery", "service.version": version("relquery")}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    address = endpoint.rstrip("/")
    exporter = OTLPSpanExporter(
        address if address.endswith("/v1/traces") else f"{address}/v1/traces"
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return _Spans(provider, model)


class _Spans:
    """One span a request, made when the request has been served."""

    def __init__(self, provider: Any, model: str) -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider, self._model = provider, model
        self._tracer = provider.get_tracer("relquery.serve")
        self._parent_of = TraceContextTextMapPropagator().extract
        self._kind, self._failed = SpanKind.SERVER, StatusCode.ERROR

    def served(self, request: Served) -> None:
        """See Tracing."""
        if request.asker is None:  # health and the like
            return
        operation = OPERATIONS.get(request.route)
        span = self._tracer.start_span(
            f"{operation} {self._model}" if operation else f"{request.method} {request.route}",
            context=self._parent_of(_carrier(request)),
            kind=self._kind,
            start_time=request.began,
            attributes=_attributes(request, operation, self._model),
        )
        if request.status >= 500:
            span.set_status(self._failed)
        span.end(request.began + int(request.seconds * 1e9))

    def stop(self) -> None:
        """See Tracing."""
        self._provider.shutdown()


OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
}
"""What OpenTelemetry's conventions call the routes of the known APIs."""


def _carrier(request: Served) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in request.headers
        if name in (b"traceparent", b"tracestate")
    }


def _attributes(request: Served, operation: str | None, model: str) -> dict[str, Any]:
    """Names as in OpenTelemetry's conventions for generative AI, and ours."""
    found: dict[str, Any] = {
        "http.request.method": request.method,
        "http.route": request.route,
        "http.response.status_code": request.status,
        "relquery.request": request.id,
    }
    if request.error is not None:
        found["error.type"] = request.error
    assert request.asker is not None
    account = request.asker.account
    if request.asker.tenant:
        found["relquery.tenant"] = request.asker.tenant
    if operation is not None or account.prompts:
        found["gen_ai.operation.name"] = operation or "generate_content"
        found["gen_ai.provider.name"] = "relquery"
        found["gen_ai.request.model"] = found["gen_ai.response.model"] = model
    if account.prompts:
        found["gen_ai.usage.input_tokens"] = account.prompt_tokens
        found["gen_ai.usage.cache_read.input_tokens"] = account.cached_tokens
        found["gen_ai.usage.output_tokens"] = account.output_tokens
        found["relquery.prompts"] = account.prompts
    if account.first_token is not None:
        found["gen_ai.server.time_to_first_token"] = account.first_token
    if account.latency is not None:
        for part in ("waiting", "core", "tail"):
            found[f"relquery.{part}"] = getattr(account.latency, part)
    return found
