"""Traces of requests, sent to an OpenTelemetry collector by its instrumentation for ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from starlette.types import ASGIApp

from relquery.errors import MissingExtraError
from relquery.serve.logs import Served
from relquery.serve.metrics import PARTS

OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
}
"""What OpenTelemetry's conventions for generative AI call the routes of the known APIs."""


class Tracing:
    """Spans for a collector, one a request.

    endpoint: such as http://localhost:4318; they go to its /v1/traces. Raises MissingExtraError
    without the `otel` extra.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise MissingExtraError("Sending traces (--otlp)", "otel") from error
        about = {"service.name": "relquery", "service.version": version("relquery")}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        address = f"{endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces"
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address)))
        self._current = trace.get_current_span
        self._wrap: Any = OpenTelemetryMiddleware

    def traced(self, app: ASGIApp) -> ASGIApp:
        """The application with a span around each request but those for health and the page."""
        found: ASGIApp = self._wrap(
            app,
            tracer_provider=self._provider,
            excluded_urls="/health,/console,/metrics",
            exclude_spans=["receive", "send"],
        )
        return found

    def describe(self, request: Served) -> None:
        """Tell of a request in its span, just before that ends."""
        operation, span, asker = OPERATIONS.get(request.route), self._current(), request.asker
        model = "" if asker is None else asker.model
        span.update_name(f"{operation or request.method} {model if operation else request.route}")
        span.set_attributes(_attributes(request, operation))

    def stop(self) -> None:
        """Send what is left; may wait some seconds."""
        self._provider.shutdown()


def _attributes(request: Served, operation: str | None) -> dict[str, Any]:
    """What the library does not know: names as in OpenTelemetry's conventions, and ours."""
    found: dict[str, Any] = {"http.route": request.route, "relquery.request": request.id}
    if request.error is not None:
        found["error.type"] = request.error
    asker = request.asker
    if asker is None:
        return found
    if asker.tenant:
        found["relquery.tenant"] = asker.tenant
    if operation is not None or asker.prompts:
        found["gen_ai.operation.name"] = operation or "generate_content"
        found["gen_ai.provider.name"] = "relquery"
        found["gen_ai.request.model"] = found["gen_ai.response.model"] = asker.model
    if asker.prompts:
        found["gen_ai.usage.input_tokens"] = asker.prompt_tokens
        found["gen_ai.usage.cache_read.input_tokens"] = asker.cached_tokens
        found["gen_ai.usage.output_tokens"] = asker.output_tokens
        found["relquery.prompts"] = asker.prompts
    if asker.first_token is not None:
        found["gen_ai.server.time_to_first_token"] = asker.first_token
    if asker.latency is not None:
        for part in PARTS:
            found[f"relquery.{part}"] = getattr(asker.latency, part)
    return found
